//! Maintenance of a queue.

use crate::QueueName;
use std::time::Duration;

/// Arguments of [`crate::Storage::sweep`]: one bounded step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepParams {
    /// The queue.
    pub queue: QueueName,
    /// Make unfinished tasks past their `expires_at` dead letters: a `PERMANENT_FAILURE` attempt of
    /// type [`crate::AttemptError::EXPIRED`] is appended, and the holder of one in flight is stale
    /// with detail `Expired` from then on.
    pub expire: bool,
    /// Remove succeeded tasks that finished longer ago; `None` removes none.
    pub succeeded_older_than: Option<Age>,
    /// Remove cancelled tasks that finished longer ago; `None` removes none.
    pub cancelled_older_than: Option<Age>,
    /// Remove dead letters that died longer ago and have no retention of their own (`None` removes
    /// none of them), and those whose own retention is over.
    pub dead: Option<DeadRetention>,
    /// At most so many tasks in this step (Bounded).
    pub limit: u32,
}

/// What to do with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadRetention {
    /// The queue's retention; `None` is for ever.
    pub queue: Option<Duration>,
}

/// How long ago a task must have finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// By the storage's clock.
    LongerThan(Duration),
    /// Before this instant, exclusive.
    Before(crate::Timestamp),
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Tasks that became dead letters.
    pub expired: u64,
    /// Tasks that were removed.
    pub removed: u64,
    /// The step stopped at its limit.
    pub more: bool,
}
