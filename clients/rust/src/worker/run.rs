//! One handler, from its start to its end: it returned, it was stopped, or its time was over.

use super::handlers::{Handler, Returned};
use crate::{Cause, HandlerError, Job, Outcome, StopReason, job::Controls};
use futures::FutureExt as _;
use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::Instant;

/// A handler with an execution timeout is told no earlier than this before it.
const MARGIN_MAX: Duration = Duration::from_secs(1);

/// Sees what a handler returned, before it is sent.
pub(super) type Mapper = Arc<dyn Fn(&Job, Returned) -> Outcome + Send + Sync>;

/// What a handler needs to run.
pub(super) struct Run {
    pub(super) key: i64,
    pub(super) job: Job,
    pub(super) handler: Handler,
    pub(super) mapper: Option<Mapper>,
    pub(super) controls: Controls,
    /// When its time is over.
    pub(super) timeout: Option<Timeout>,
    /// How long a handler that is stopped has before it is dropped.
    pub(super) cleanup: Duration,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("job", &self.job).finish_non_exhaustive()
    }
}

/// When a handler's time is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeout {
    at: Instant,
    cleanup: Duration,
}

impl Timeout {
    /// No lease reaches beyond the execution timeout, and who waits for the task gets it in that
    /// moment. So the handler is told a little before, to have its end reported in time.
    pub(super) fn of_claim(arrived: Instant, timeout: Duration) -> Self {
        let margin = (timeout / 10).min(MARGIN_MAX);
        Self { at: arrived + timeout.saturating_sub(margin), cleanup: margin / 2 }
    }
}

/// How a handler ended.
#[derive(Debug)]
pub(super) enum Ended {
    Returned(Outcome),
    TimedOut,
    /// By the reason that its controls have.
    Stopped,
}

impl Run {
    pub(super) async fn run(self) -> (i64, Ended) {
        let Self { key, job, handler, mapper, controls, timeout, cleanup } = self;
        let work = async {
            let work = AssertUnwindSafe(async { handler(job.clone()).await }).catch_unwind();
            let returned = work.await.unwrap_or_else(|panic| Err(panicked(&*panic)));
            let Some(mapper) = mapper else { return returned.unwrap_or_else(Outcome::from) };
            std::panic::catch_unwind(AssertUnwindSafe(|| mapper(&job, returned)))
                .unwrap_or_else(|panic| panicked(&*panic).into())
        };
        // Boxed, so that it can be dropped before its end is told.
        let mut work = Box::pin(in_span(&job, work));
        let time_is_over = async {
            match timeout {
                Some(timeout) => tokio::time::sleep_until(timeout.at).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            // What it returns once it was told to stop counts no more: nobody knows whether it is an
            // end or a retreat.
            outcome = &mut work => {
                let is_told = job.is_cancelled();
                return (key, if is_told { Ended::Stopped } else { Ended::Returned(outcome) });
            }
            () = controls.stopped() => Ended::Stopped,
            () = time_is_over => {
                controls.stop(StopReason::Timeout);
                Ended::TimedOut
            }
        };
        let cleanup = match (&ended, timeout) {
            (Ended::TimedOut, Some(timeout)) => cleanup.min(timeout.cleanup),
            _ => cleanup,
        };
        let _ = tokio::time::timeout(cleanup, &mut work).await;
        drop(work);
        (key, ended)
    }
}

fn panicked(panic: &(dyn Any + Send)) -> HandlerError {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Cause::new("panic", message.unwrap_or_else(|| "the handler panicked".to_owned())).into()
}

#[cfg(feature = "opentelemetry")]
fn in_span<T>(job: &Job, work: impl Future<Output = T>) -> impl Future<Output = T> {
    crate::trace::in_span(job, work)
}

#[cfg(not(feature = "opentelemetry"))]
fn in_span<T>(job: &Job, work: impl Future<Output = T>) -> impl Future<Output = T> {
    let (queue, task_id, attempt) = (job.queue(), job.id(), job.attempt_no());
    let span = tracing::info_span!("rdq.handle", queue, task_id, attempt);
    tracing::Instrument::instrument(work, span)
}
