//! Claims: how they are taken, kept and seen.

use crate::{QueueName, Task, TaskId, TaskStatus, Timestamp, WorkerId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Proof of a claim, minted by the plugin and opaque to everybody else. It names one claim of one
/// task in one store, and bytes that the plugin never issued are stale, not an error of their own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ClaimToken(pub Bytes);

impl std::fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClaimToken({} bytes)", self.0.len())
    }
}

/// One claim call of [`crate::Storage::claim_due`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimParams {
    /// Where to take from; at least one, none twice.
    pub queues: Vec<ClaimQueue>,
    /// At least 1 (Bounded).
    pub limit: u32,
    /// Stop before envelopes, progress and history outgrow this (Bounded); a first task always
    /// fits.
    pub bytes_max: usize,
    /// The lease that the worker asks for; else the task's own, else the queue's.
    pub lease: Option<Duration>,
    /// Who claims.
    pub worker_id: WorkerId,
}

/// A queue to claim from, and what the engine resolved for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimQueue {
    /// The queue.
    pub queue: QueueName,
    /// The lease where neither worker nor task names one.
    pub lease: Duration,
    /// No lease is longer than this.
    pub lease_max: Duration,
}

/// The answer to one claim call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claimed {
    /// The claims, in their order (OrderedByPriorityThenDue within each queue).
    pub claims: Vec<Claim>,
    /// How long until the next task of these queues may be due, by the storage's clock; zero if
    /// more is due already. `None` if nothing is waiting at all.
    pub next_due_in: Option<Duration>,
}

/// The answer to claims that may have waited.
#[derive(Debug, Default)]
pub struct Awaited {
    /// The answers.
    pub claims: Vec<crate::Result<Claimed>>,
    /// How long the call had waited when it looked what is due, at most: the leases run from then on,
    /// and what was made due later it knows nothing of.
    pub waited: Duration,
}

impl Awaited {
    /// Whether nothing was claimed, and nothing went wrong.
    pub fn is_empty(&self) -> bool {
        let is_empty = |claimed: &Claimed| claimed.claims.is_empty();
        self.claims.iter().all(|answer| answer.as_ref().is_ok_and(is_empty))
    }
}

/// A claimed task.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The task as the claim left it, with the newest [`crate::CLAIM_ATTEMPTS_MAX`] attempts,
    /// without stacks and details.
    pub task: Task,
    /// Proof of the claim.
    pub token: ClaimToken,
    /// Grows with every claim, for ever.
    pub generation: i64,
    /// The lease of this claim: what an extension that names none repeats.
    pub lease: Duration,
}

/// Names a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// The task.
    pub task_id: TaskId,
    /// The claim.
    pub token: ClaimToken,
}

/// Names a claim by who holds it, for those whose contract has no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldClaim {
    /// The task.
    pub task_id: TaskId,
    /// Who claimed it.
    pub worker_id: WorkerId,
    /// The claim's generation.
    pub generation: i64,
}

/// One heartbeat of [`crate::Storage::extend_leases`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendParams {
    /// The claim.
    pub claim: ClaimRef,
    /// The lease from now on.
    pub lease: Duration,
    /// No lease of the claim ends later than this after it was taken.
    pub held_max: Option<Duration>,
    /// Replaces the checkpoint if set.
    pub progress: Option<Bytes>,
    /// Refuse if the lease has run out.
    pub strict: bool,
}

/// The answer to one heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extended {
    /// When the lease ends now.
    pub lease_expires_at: Timestamp,
    /// How much of it is left, by the storage's clock.
    pub remaining: Duration,
}

/// The answer to a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// The task's status now.
    pub status: TaskStatus,
    /// Whether this call cancelled it.
    pub changed: bool,
}
