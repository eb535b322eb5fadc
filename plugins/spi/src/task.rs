//! A task as a storage keeps it.

use crate::{Attempt, QueueName, TaskId, Timestamp, WorkerId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// Waits for its due time or for a worker.
    Pending,
    /// Claimed; the lease may have lapsed.
    InFlight,
    /// Completed.
    Succeeded,
    /// A dead letter.
    Dead,
    /// Cancelled.
    Cancelled,
}

impl TaskStatus {
    /// Whether nothing but a redrive changes the task any more.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::InFlight)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// Completed.
    Success,
    /// Failed; may run again.
    RetryableFailure,
    /// Failed; must not run again.
    PermanentFailure,
    /// The lease lapsed and somebody reclaimed the task.
    LeaseExpired,
    /// Cancelled in flight.
    Cancelled,
}

/// What a task overrides of its queue's configuration. Stored and answered; the plugin acts on
/// `lease` (where a claim names none) and `retention_dead` (in a sweep) alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overrides {
    /// At least 1.
    pub max_attempts: Option<u32>,
    /// The lease of a claim that names none.
    pub lease: Option<Duration>,
    /// The backoff after the first failure.
    pub initial_backoff: Option<Duration>,
    /// How long the task is kept once dead.
    pub retention_dead: Option<Duration>,
}

/// A task as a storage answers it.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Its queue.
    pub queue: QueueName,
    /// Its handler: what a dead-letter filter compares.
    pub handler_ref: QueueName,
    /// Higher goes first.
    pub priority: i32,
    /// What the client sent, opaque: byte for byte as admitted.
    pub envelope: Bytes,
    /// What it overrides of its queue.
    pub overrides: Overrides,
    /// Where it stands.
    pub status: TaskStatus,
    /// Attempts spent since the last redrive.
    pub attempt_count: u32,
    /// Redrives so far.
    pub redrive_count: u32,
    /// Lapsed and reclaimed leases so far.
    pub lease_expired_count: u32,
    /// The worker's checkpoint.
    pub progress: Bytes,
    /// What the completion returned.
    pub result: Bytes,
    /// The live claim's instant; unset unless in flight.
    pub claimed_at: Option<Timestamp>,
    /// The live claim's worker; unset unless in flight.
    pub claimed_by: Option<WorkerId>,
    /// Set while pending.
    pub next_attempt_at: Option<Timestamp>,
    /// Set while in flight.
    pub lease_expires_at: Option<Timestamp>,
    /// When the task dies unfinished.
    pub expires_at: Option<Timestamp>,
    /// When it came into being.
    pub created_at: Timestamp,
    /// Set when terminal.
    pub finished_at: Option<Timestamp>,
    /// The history, oldest first, or the part of it that the call answers.
    pub attempts: Vec<Attempt>,
    /// The highest attempt number so far.
    pub last_attempt_no: u32,
}
