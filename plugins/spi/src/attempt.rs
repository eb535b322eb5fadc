//! Attempts: what a worker reports, and what the history keeps.

use crate::{AttemptOutcome, Timestamp, WorkerId};
use bytes::Bytes;

/// Why an attempt failed. The engine cut it to its limits and took out NUL characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttemptError {
    /// The type that classification matches; empty if unknown.
    pub error_type: String,
    /// For people.
    pub message: String,
    /// For programs.
    pub detail: String,
    /// The stack.
    pub stack: String,
}

impl AttemptError {
    /// The type of the record that a reclaimed lease leaves.
    pub const LEASE_EXPIRED: &'static str = "rdq.LeaseExpired";
    /// The type of the record of a task that outlived its `expires_at`.
    pub const EXPIRED: &'static str = "rdq.Expired";
    /// The type of the record of a task whose attempts are spent.
    pub const MAX_ATTEMPTS_EXCEEDED: &'static str = "rdq.MaxAttemptsExceeded";

    /// An error with a type and a message.
    pub fn new(error_type: impl Into<String>, message: impl Into<String>) -> Self {
        Self { error_type: error_type.into(), message: message.into(), ..Self::default() }
    }

    /// The bytes of its text.
    pub fn len_bytes(&self) -> usize {
        self.error_type.len() + self.message.len() + self.detail.len() + self.stack.len()
    }
}

/// What a worker reports of an attempt; the storage adds number, times, outcome and worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttemptReport {
    /// Why it failed.
    pub error: Option<AttemptError>,
    /// Opaque: what the worker sent beside the known fields. Answered as it came.
    pub extra: Bytes,
}

/// One record of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Counts from 1, for life.
    pub attempt_no: u32,
    /// The claim's instant, by the storage's clock.
    pub started_at: Option<Timestamp>,
    /// When it ended, by the storage's clock.
    pub finished_at: Option<Timestamp>,
    /// How it ended; unset only in a record that was admitted without one.
    pub outcome: Option<AttemptOutcome>,
    /// The claim's worker.
    pub worker_id: Option<WorkerId>,
    /// Why it failed.
    pub error: Option<AttemptError>,
    /// Opaque: what came beside the known fields.
    pub extra: Bytes,
    /// Above 0: this record stands for so many, folded into one.
    pub folded_count: u32,
}

impl Attempt {
    /// Takes the place of the next one, too, where a history folds its middle.
    pub fn fold_in(&mut self, gone: &Self) {
        self.folded_count = self.folded_count.max(1).saturating_add(gone.folded_count.max(1));
        self.finished_at = gone.finished_at;
    }

    /// What the record weighs in the history's budget, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.error.as_ref().map_or(0, AttemptError::len_bytes)
            + self.extra.len()
            + self.worker_id.as_ref().map_or(0, |worker| worker.as_str().len())
    }
}
