//! One handler, from its start to its end: it returned, it was stopped, or its time was over.

use super::handlers::{Handler, Returned};
#[cfg(feature = "opentelemetry")]
use crate::trace::HandleSpan;
use crate::{Cause, Claim, HandlerError, Outcome, StopReason, claim::Controls};
use futures::FutureExt as _;
use std::{any::Any, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::Instant;

/// A handler with an execution timeout is told no earlier than this before it.
const MARGIN_MAX: Duration = Duration::from_secs(1);

/// The error type of a handler whose time was over.
pub(super) const TIMEOUT: &str = "rdq.Timeout";

/// Sees what a handler returned, before it is sent.
pub(super) type Mapper = Arc<dyn Fn(&Claim, Returned) -> Outcome + Send + Sync>;

/// What a handler needs to run.
pub(super) struct Run {
    pub(super) claim: Claim,
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
        f.debug_struct("Run").field("claim", &self.claim).finish_non_exhaustive()
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
    /// moment. So the handler is told a little before, to have its end reported in time. The time
    /// runs from the claim, which was of this age when it arrived.
    pub(super) fn of_claim(arrived: Instant, age: Duration, timeout: Duration) -> Self {
        let margin = (timeout / 10).min(MARGIN_MAX);
        Self { at: arrived + timeout.saturating_sub(margin + age), cleanup: margin / 2 }
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

impl Ended {
    /// Of an attempt that failed. One that is to run later says when, and is none.
    fn error_type(&self) -> Option<&str> {
        match self {
            Self::Returned(
                Outcome::Fail(cause) | Outcome::Retryable(cause) | Outcome::Permanent(cause),
            ) => Some(cause.error_type()),
            Self::TimedOut => Some(TIMEOUT),
            Self::Returned(_) | Self::Stopped => None,
        }
    }
}

impl Run {
    pub(super) async fn run(self) -> Ended {
        let Self { claim, handler, mapper, controls, timeout, cleanup } = self;
        let work = async {
            let work = AssertUnwindSafe(async { handler(claim.clone()).await }).catch_unwind();
            let returned = work.await.unwrap_or_else(|panic| Err(panicked(&*panic)));
            let Some(mapper) = mapper else { return returned.unwrap_or_else(Outcome::from) };
            std::panic::catch_unwind(AssertUnwindSafe(|| mapper(&claim, returned)))
                .unwrap_or_else(|panic| panicked(&*panic).into())
        };
        // Boxed, so that it can be dropped before its end is told.
        let span = HandleSpan::start(&claim);
        let mut work = Box::pin(span.run(work));
        let time_is_over = async {
            match timeout {
                Some(timeout) => tokio::time::sleep_until(timeout.at).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            outcome = &mut work => Ok(outcome),
            () = controls.stopped() => Err(Ended::Stopped),
            () = time_is_over => {
                controls.stop(StopReason::Timeout);
                Err(Ended::TimedOut)
            }
        };
        let (outcome, otherwise) = match ended {
            Ok(outcome) => (Some(outcome), Ended::Stopped),
            Err(otherwise) => {
                let cleanup = match (&otherwise, timeout) {
                    (Ended::TimedOut, Some(timeout)) => cleanup.min(timeout.cleanup),
                    _ => cleanup,
                };
                (tokio::time::timeout(cleanup, &mut work).await.ok(), otherwise)
            }
        };
        drop(work);
        let ended = match outcome {
            Some(outcome) if is_used(&outcome, claim.stop_reason()) => Ended::Returned(outcome),
            _ => otherwise,
        };
        span.end(ended.error_type());
        ended
    }
}

/// Whether what a handler returned ends the attempt. Once it was told to stop, a failure may be a mere
/// retreat; a success is one, if the claim still is this worker's to end.
fn is_used(outcome: &Outcome, stopped: Option<StopReason>) -> bool {
    match stopped {
        None => true,
        Some(StopReason::Shutdown) => matches!(outcome, Outcome::Complete(_)),
        Some(_) => false,
    }
}

pub(super) fn panicked(panic: &(dyn Any + Send)) -> HandlerError {
    let message = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    Cause::new("panic", message.unwrap_or_else(|| "the handler panicked".to_owned())).into()
}

#[cfg(not(feature = "opentelemetry"))]
struct HandleSpan(tracing::Span);

#[cfg(not(feature = "opentelemetry"))]
impl HandleSpan {
    fn start(claim: &Claim) -> Self {
        let (queue, task_id, attempt) = (claim.queue(), claim.id(), claim.attempt_no());
        let span = tracing::info_span!(
            "rdq.handle",
            queue,
            task_id,
            attempt,
            "error.type" = tracing::field::Empty,
        );
        Self(span)
    }

    fn run<W: Future>(&self, work: W) -> tracing::instrument::Instrumented<W> {
        tracing::Instrument::instrument(work, self.0.clone())
    }

    fn end(self, error_type: Option<&str>) {
        if let Some(error_type) = error_type {
            self.0.record("error.type", error_type);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_handler_runs_from_its_claim() {
        let (arrived, second) = (crate::client::now(), Duration::from_secs(1));
        for (age, timeout, left) in [
            (0, 100, 99), // a second before
            (30, 100, 69),
            (200, 100, 0),
        ] {
            let timeout = Timeout::of_claim(arrived, age * second, timeout * second);
            assert_eq!(timeout.at, arrived + left * second, "{age} s old");
        }
        let short = Timeout::of_claim(arrived, second / 2, 2 * second);
        assert_eq!(short.at, arrived + second * 13 / 10, "a tenth before");
    }
}
