//! What a handler is given: the task, its claim, and the word to stop.

use crate::{Error, Task};
use bytes::Bytes;
use rdq_proto::v1::ErrorReason;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

/// The server keeps this much of a checkpoint.
const PROGRESS_BYTES_MAX: usize = 64 << 10;

/// One attempt at a task, as its handler sees it. Cheap to clone.
///
/// # When the work must stop
///
/// A claim can be lost or the task cancelled while the handler runs. Then
/// [`cancellation`](Self::cancellation) is cancelled, [`stop_reason`](Self::stop_reason) says why, and
/// the handler has a moment (1 s, see `WorkerBuilder::cleanup`) to end by itself. After that its
/// future is dropped, at the `await` where it stands. What it returns from then on is not used.
///
/// A handler that never awaits cannot be dropped: put such work into `spawn_blocking`, and let it look
/// at the token.
#[derive(Clone)]
pub struct Job(Arc<Inner>);

struct Inner {
    task: Task,
    attempt_no: i32,
    max_attempts: i32,
    generation: i64,
    controls: Controls,
}

impl Job {
    pub(crate) fn new(
        task: Task,
        (attempt_no, max_attempts, generation): (i32, i32, i64),
        controls: Controls,
    ) -> Self {
        Self(Arc::new(Inner { task, attempt_no, max_attempts, generation, controls }))
    }

    /// The whole task. Its history has no stacks and details here, and at most 100 attempts.
    pub fn task(&self) -> &Task {
        &self.0.task
    }

    /// The task's id.
    pub fn id(&self) -> &str {
        self.0.task.id()
    }

    /// The task's queue.
    pub fn queue(&self) -> &str {
        self.0.task.queue()
    }

    /// The bytes for the handler.
    pub fn payload(&self) -> &Bytes {
        self.0.task.payload()
    }

    /// What the payload is; empty if the producer did not say.
    pub fn content_type(&self) -> &str {
        self.0.task.content_type()
    }

    /// The producer's headers.
    pub fn headers(&self) -> &HashMap<String, String> {
        self.0.task.headers()
    }

    /// One of the producer's headers.
    pub fn header(&self, key: &str) -> Option<&str> {
        self.0.task.header(key)
    }

    /// The number of this attempt in the task's history, from 1 and over redrives.
    pub fn attempt_no(&self) -> i32 {
        self.0.attempt_no
    }

    /// How many attempts the task has.
    pub fn max_attempts(&self) -> i32 {
        self.0.max_attempts
    }

    /// Grows with every claim of this task, for ever. Hand it to systems that should refuse a
    /// slower, older worker.
    pub fn generation(&self) -> i64 {
        self.0.generation
    }

    /// The checkpoint that an earlier attempt left; empty if none did.
    pub fn progress(&self) -> &Bytes {
        self.0.task.progress()
    }

    /// Leaves a checkpoint of up to 64 KiB for a later attempt; `PayloadTooLarge` if it has more.
    /// It goes out with the next heartbeat, or before the outcome of an attempt that failed.
    pub fn set_progress(&self, progress: impl Into<Bytes>) -> Result<(), Error> {
        let progress = progress.into();
        if progress.len() > PROGRESS_BYTES_MAX {
            let metadata = HashMap::from([
                ("field".to_owned(), "progress".to_owned()),
                ("limit_bytes".to_owned(), PROGRESS_BYTES_MAX.to_string()),
                ("size_bytes".to_owned(), progress.len().to_string()),
            ]);
            let (reason, code) = (ErrorReason::PayloadTooLarge, Code::InvalidArgument);
            return Err(Error::local_with(reason, code, "`progress` is too large", metadata));
        }
        let mut latest = self.0.controls.progress();
        latest.bytes = progress;
        latest.version += 1;
        Ok(())
    }

    /// Cancelled when the work must stop.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.0.controls.0.seen
    }

    /// Whether the work must stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.controls.0.token.is_cancelled()
    }

    /// Why the work must stop; none while it may go on.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.0.controls.0.reason.get().copied()
    }
}

/// Without what the task carries, which belongs in no log.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("task", &self.0.task)
            .field("attempt_no", &self.0.attempt_no)
            .field("generation", &self.0.generation)
            .field("stop_reason", &self.stop_reason())
            .finish_non_exhaustive()
    }
}

/// Why a handler must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// Somebody else has the task now.
    Lost,
    /// The task was cancelled.
    Cancelled,
    /// The task expired.
    Expired,
    /// The queue's execution timeout is over.
    Timeout,
    /// The worker was stopped, and its grace is over.
    Shutdown,
}

impl StopReason {
    /// What the detail of a lost or stale claim says.
    pub(crate) fn of_detail(detail: Option<&str>) -> Self {
        match detail {
            Some("CANCELLED") => Self::Cancelled,
            Some("EXPIRED") => Self::Expired,
            _ => Self::Lost,
        }
    }
}

/// The worker's side of a job.
#[derive(Debug, Clone)]
pub(crate) struct Controls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    token: CancellationToken,
    /// The handler's own: what it cancels by itself stops nothing here.
    seen: CancellationToken,
    reason: OnceLock<StopReason>,
    progress: Mutex<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    bytes: Bytes,
    /// How often it was set.
    version: u64,
    /// The version that the server has.
    stored: u64,
}

impl Default for Controls {
    fn default() -> Self {
        let token = CancellationToken::new();
        let seen = token.child_token();
        Self(Arc::new(Shared { token, seen, reason: OnceLock::new(), progress: Mutex::default() }))
    }
}

impl Controls {
    /// Stops the handler; the first reason stands.
    pub(crate) fn stop(&self, reason: StopReason) {
        let _ = self.0.reason.set(reason);
        self.0.token.cancel();
    }

    pub(crate) async fn stopped(&self) {
        self.0.token.cancelled().await;
    }

    /// A checkpoint that the server does not have, and its version.
    pub(crate) fn new_progress(&self) -> Option<(u64, Bytes)> {
        let progress = self.progress();
        (progress.version > progress.stored).then(|| (progress.version, progress.bytes.clone()))
    }

    /// The server has this version, or will not have it.
    pub(crate) fn progress_stored(&self, version: u64) {
        let mut progress = self.progress();
        progress.stored = progress.stored.max(version);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> (Job, Controls) {
        let controls = Controls::default();
        let task = Task::decode(Bytes::new()).unwrap();
        (Job::new(task, (1, 5, 1), controls.clone()), controls)
    }

    #[test]
    fn a_checkpoint_is_new_until_it_is_stored() {
        let (job, controls) = job();
        assert_eq!(controls.new_progress(), None);
        job.set_progress("a").unwrap();
        job.set_progress("b").unwrap();
        let (version, bytes) = controls.new_progress().unwrap();
        job.set_progress("c").unwrap();
        controls.progress_stored(version);
        assert_eq!((&bytes[..], &controls.new_progress().unwrap().1[..]), (&b"b"[..], &b"c"[..]));
        assert!(job.set_progress(vec![0; PROGRESS_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn the_first_reason_to_stop_stands() {
        let (job, controls) = job();
        assert_eq!((job.is_cancelled(), job.stop_reason()), (false, None));
        controls.stop(StopReason::Cancelled);
        controls.stop(StopReason::Lost);
        assert_eq!((job.is_cancelled(), job.stop_reason()), (true, Some(StopReason::Cancelled)));
    }
}
