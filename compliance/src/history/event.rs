//! What a history is made of. No judgement is here.

use rdq_spi::{Call, Claim, ClaimToken, StorageError, TaskId, TaskStatus, Timestamp};
use std::time::Duration;

/// What a caller asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// To admit a task.
    Enqueue {
        /// The task.
        task: TaskId,
        /// When it is due, if the caller named an instant.
        due: Option<Timestamp>,
    },
    /// To claim whatever is due.
    Claim,
    /// To keep a claim.
    Extend {
        /// The task.
        task: TaskId,
        /// The claim's token.
        token: ClaimToken,
        /// The lease from then on.
        lease: Duration,
        /// Refuse if the lease has run out.
        strict: bool,
    },
    /// To end a claim.
    Resolve {
        /// The task.
        task: TaskId,
        /// The claim's token.
        token: ClaimToken,
        /// How.
        call: Call,
    },
    /// To end a task.
    Cancel {
        /// The task.
        task: TaskId,
    },
    /// To make dead letters pending again: these, or whichever there are.
    Redrive {
        /// Which, if they were named.
        tasks: Option<Vec<TaskId>>,
    },
    /// To let expired tasks die, whichever they are.
    Expire,
    /// To remove finished tasks: these, or whichever there are.
    Remove {
        /// Which, if they were named.
        tasks: Option<Vec<TaskId>>,
    },
}

/// A claim as its claimant saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The task.
    pub task: TaskId,
    /// The claim's token.
    pub token: ClaimToken,
    /// The claim's generation.
    pub generation: i64,
    /// The number that this attempt will have.
    pub attempt_no: u32,
    /// Attempts spent before it.
    pub attempt_count: u32,
    /// The storage's instant of the claim.
    pub claimed_at: Timestamp,
    /// The storage's instant of the lease's end.
    pub lease_expires_at: Timestamp,
}

impl Grant {
    /// What a claim says of itself. `None` if it names no instants, which a claim always does.
    pub fn of(claim: &Claim) -> Option<Self> {
        Some(Self {
            task: claim.task.id.clone(),
            token: claim.token.clone(),
            generation: claim.generation,
            attempt_no: claim.task.last_attempt_no + 1,
            attempt_count: claim.task.attempt_count,
            claimed_at: claim.task.claimed_at?,
            lease_expires_at: claim.task.lease_expires_at?,
        })
    }
}

/// What a call did, if it succeeded.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The task is stored.
    Enqueued {
        /// By this call.
        created: bool,
    },
    /// These were claimed.
    Claimed(Vec<Grant>),
    /// The lease ends then.
    Extended {
        /// The storage's instant.
        lease_expires_at: Timestamp,
    },
    /// The claim is over.
    Resolved {
        /// The task's status after it.
        status: TaskStatus,
        /// When the task is due again.
        next_attempt_at: Option<Timestamp>,
        /// An earlier call had done it.
        replayed: bool,
    },
    /// The task's status, and whether this call changed it.
    Cancelled {
        /// The task's status after it.
        status: TaskStatus,
        /// By this call.
        changed: bool,
    },
    /// It was done.
    Done,
}

/// What a caller knows of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was applied.
    Ok(Outcome),
    /// It was not applied.
    Refused,
    /// It was applied, or not.
    Unknown,
}

impl Answer {
    /// What an error lets its caller know.
    pub fn of_error(error: &StorageError) -> Self {
        use StorageError as E;
        // No `_` arm: a new variant must be decided here before it compiles.
        match error {
            E::StaleClaim { .. }
            | E::NotFound { .. }
            | E::IdConflict { .. }
            | E::QueueNotEmpty { .. }
            | E::CasConflict { .. }
            | E::MutationObserved { .. }
            | E::InvalidPosition
            | E::Unsupported { .. }
            | E::Contention { .. }
            | E::Full { .. }
            | E::Refused { .. }
            | E::Unavailable { .. }
            | E::Closed => Self::Refused,
            E::OutcomeUnknown { .. } | E::Internal { .. } => Self::Unknown,
        }
    }
}

/// One call: when it was sent and when it was answered, on the history's own clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What was asked.
    pub operation: Operation,
    /// When.
    pub invoked: u64,
    /// When the answer came; never, if it did not.
    pub returned: Option<u64>,
    /// The answer.
    pub answer: Answer,
}

impl Event {
    /// Whether it may have been applied.
    pub(crate) fn maybe_applied(&self) -> bool {
        self.answer != Answer::Refused
    }

    /// Whether it was answered before the other was asked.
    pub(crate) fn precedes(&self, invoked: u64) -> bool {
        self.returned.is_some_and(|returned| returned < invoked)
    }
}
