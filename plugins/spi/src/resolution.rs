//! How claims end.

use crate::{AttemptReport, ClaimRef, Moment, TaskStatus, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Which call ends the claim: what a repetition is matched by (ReplaySafeResolution).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// `Complete`.
    Complete,
    /// `Reschedule`.
    Reschedule,
    /// `DeadLetter`.
    DeadLetter,
    /// `Fail`: the engine decided the outcome, and may decide otherwise the next time; what was
    /// decided first stands.
    Fail,
    /// `Release`.
    Release,
}

/// What becomes of the task.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Succeeded: a `SUCCESS` attempt is appended.
    Succeed {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
        /// What the handler returned.
        result: Bytes,
        /// Remove the task at once.
        forget: bool,
    },
    /// Pending again: a `RETRYABLE_FAILURE` is appended.
    Retry {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
        /// When it is due.
        due: Moment,
    },
    /// Dead: a `PERMANENT_FAILURE` is appended.
    Die {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
    },
    /// Pending again, unspent: no attempt is appended. Never due before now.
    GiveBack {
        /// When it is due.
        due: Moment,
    },
}

/// One resolution of [`crate::Storage::resolve`].
#[derive(Debug, Clone, PartialEq)]
pub struct Resolution {
    /// The claim.
    pub claim: ClaimRef,
    /// Which call this is.
    pub call: Call,
    /// What becomes of the task.
    pub outcome: Outcome,
    /// Refuse if the lease has run out. A repetition of what was done in time still succeeds.
    pub strict: bool,
}

/// The answer to one resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The task's status after it; for a repetition, what the first one led to.
    pub status: TaskStatus,
    /// When the task is due again, if pending.
    pub next_attempt_at: Option<Timestamp>,
    /// An earlier call had done this; nothing changed.
    pub replayed: bool,
}
