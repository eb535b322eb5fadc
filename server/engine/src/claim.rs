//! Claims by a single call. They share the claim loops with the streams, but never wait for work.

use crate::{
    Engine, EngineError,
    core::Core,
    dispatch::{Ask, Dispatcher, Unary, Undelivered},
    limits::{EXTENT_MAX, check_lease, queue_set},
};
use bytes::Bytes;
use rdq_spi::{QueueName, Task, VersionMismatch, WorkerId};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// What a claim asks for.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Where to take from, 1 to 64; repeated ones count once.
    pub queues: Vec<QueueName>,
    /// Tasks at once, cut to 1,000; 0 claims nothing.
    pub limit: u32,
    /// From 10 ms to 12 h; else the task's, else the queue's.
    pub lease: Option<Duration>,
    /// Who claims.
    pub worker_id: WorkerId,
}

/// A claimed task, for the worker.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedTask {
    /// The task as the claim left it.
    pub task: Task,
    /// Proof of the claim, opaque to the worker.
    pub token: Bytes,
    /// Grows with every claim of the task, for ever.
    pub generation: i64,
    /// The number that this attempt will have.
    pub attempt_no: u32,
    /// How much of the lease was left when this was answered.
    pub lease_remaining: Duration,
    /// No claim is held longer.
    pub execution_timeout: Option<Duration>,
    /// How many attempts the task has.
    pub max_attempts: u32,
    /// What to do with a task of another handler version.
    pub version_mismatch: VersionMismatch,
}

impl Engine {
    /// Claims what is due now, up to the limit. If the future is dropped, what was claimed for it
    /// goes back, unspent.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedTask>, EngineError> {
        let queues = queue_set(&request.queues)?;
        check_lease("lease", request.lease)?;
        for queue in &queues {
            self.core.queues.check_declared(queue)?;
        }
        if request.limit == 0 {
            return Ok(Vec::new());
        }
        let limit = request.limit.min(EXTENT_MAX);
        let none = Undelivered::none(Arc::clone(&self.core));
        let claimed =
            self.core.claim_once(queues, limit, request.lease, request.worker_id, none).await?;
        Ok(claimed.deliver())
    }
}

impl Core {
    /// Claims what is due now beside what was `gathered`, as much as one answer carries.
    pub(crate) async fn claim_once(
        self: &Arc<Self>,
        queues: Vec<QueueName>,
        limit: u32,
        lease: Option<Duration>,
        worker_id: WorkerId,
        gathered: Undelivered,
    ) -> Result<Undelivered, EngineError> {
        let membership = Dispatcher::join(self, queues)?;
        let (answer, answered) = oneshot::channel();
        membership.claim_once(Unary {
            ask: Ask { limit, lease, worker_id, holder: 0 },
            gathered,
            answer,
        });
        answered.await.unwrap_or(Err(EngineError::Closed))
    }
}
