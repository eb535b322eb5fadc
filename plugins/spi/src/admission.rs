//! Admission of tasks.

use crate::{Attempt, Moment, Overrides, QueueName, TaskId, TaskStatus, Timestamp};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// A task to admit. The engine has checked it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// Its id.
    pub id: TaskId,
    /// Its queue.
    pub queue: QueueName,
    /// Its handler.
    pub handler_ref: QueueName,
    /// Higher goes first.
    pub priority: i32,
    /// When it is due. An instant in the past is kept, and counts in the order of claims.
    pub due: Moment,
    /// When it dies unfinished.
    pub expires: Option<Moment>,
    /// When it came into being; the storage's now if unset.
    pub created_at: Option<Timestamp>,
    /// What the client sent, opaque.
    pub envelope: Bytes,
    /// What it overrides of its queue.
    pub overrides: Overrides,
    /// Carried over from another system.
    pub attempt_count: u32,
    /// Carried over from another system.
    pub redrive_count: u32,
    /// Carried over from another system.
    pub lease_expired_count: u32,
    /// Carried over from another system.
    pub progress: Bytes,
    /// Carried over from another system, oldest first.
    pub attempts: Vec<Attempt>,
}

/// The answer to an admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// Whether this call admitted the task; else it was there already.
    pub created: bool,
    /// The task's status now.
    pub status: TaskStatus,
}
