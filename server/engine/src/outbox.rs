//! Outboxes: queues of their own kind, whose messages are claimed in batches and owned by worker
//! and generation. What an outbox's queue is called and how it is configured stands in
//! `outbox_name.rs`.

use crate::{
    ClaimedTask, Engine, EngineError, OutboxName,
    admission::Enqueues,
    batcher::Batcher,
    core::Core,
    dispatch::Undelivered,
    limits::{
        ANSWER_BYTES_MAX, BESIDE_PAYLOAD_BYTES_MAX, COORDINATED_BYTES_MAX, EXTENT_MAX, QUEUES_MAX,
        check_lease, check_size,
    },
    outbox_name,
    report::fit_report,
    resolution::{Decided, Resolutions},
};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use rdq_spi::{
    Admission, AttemptReport, Call, ClaimRef, ClaimToken, HeldClaim, Moment, NewTask, Outcome,
    Overrides, QueueName, Resolution, Resolved, StorageError, Task, TaskId, TaskStatus, WorkerId,
};
use std::{sync::Arc, time::Duration};

/// Outboxes counted if none is named.
const OUTBOXES_MAX: usize = 1_000;
/// Names read at once.
const NAMES_PAGE: u32 = 1_000;
/// Counts under way at once.
const UNDER_WAY: usize = 4;

/// A message to enqueue.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// Where.
    pub outbox: OutboxName,
    /// Its id.
    pub id: TaskId,
    /// The message as it is kept, opaque.
    pub envelope: Bytes,
    /// The size of the payload within.
    pub payload_bytes: u64,
    /// Available after this.
    pub delay: Duration,
}

/// What a relay asks for.
#[derive(Debug, Clone)]
pub struct ClaimMessagesRequest {
    /// Where to take from; any outbox if unset.
    pub outbox: Option<OutboxName>,
    /// Messages at once, cut to 1,000; 0 claims nothing.
    pub limit: u32,
    /// From 10 ms to 12 h; 60 s if unset.
    pub lease: Option<Duration>,
    /// Who claims.
    pub worker_id: WorkerId,
}

impl Engine {
    /// Enqueues a message; idempotent by its id within an outbox.
    pub async fn enqueue_message(&self, message: NewMessage) -> Result<Admission, EngineError> {
        let task = self.core.admissible_message(message)?;
        Batcher::<Enqueues>::join(&self.core, task).await
    }

    /// Claims messages that are available, oldest first. If the future is dropped, what was claimed
    /// for it goes back, unspent.
    pub async fn claim_messages(
        &self,
        request: ClaimMessagesRequest,
    ) -> Result<Vec<ClaimedTask>, EngineError> {
        let ClaimMessagesRequest { outbox, limit, lease, worker_id } = request;
        self.core.check_outboxes("claim_due")?;
        check_lease("lease", lease)?;
        let lease = Some(lease.unwrap_or(outbox_name::LEASE));
        let mut claimed = Undelivered::none(Arc::clone(&self.core));
        if limit == 0 {
            return Ok(claimed.deliver());
        }
        let limit = limit.min(EXTENT_MAX);
        let queues = match outbox {
            Some(outbox) => vec![outbox.queue()],
            None => self.core.outboxes(usize::MAX).await?.iter().map(OutboxName::queue).collect(),
        };
        let mut sets: Vec<_> = queues.chunks(QUEUES_MAX).collect();
        // Where there are more than one claim takes, each has its turn to be first.
        if sets.len() > 1 {
            let first = fastrand::usize(..sets.len());
            sets.rotate_left(first);
        }
        for set in sets {
            let left = limit.saturating_sub(u32::try_from(claimed.len()).unwrap_or(limit));
            if left == 0 || claimed.bytes() >= ANSWER_BYTES_MAX / 2 {
                break;
            }
            let worker_id = worker_id.clone();
            claimed = self.core.claim_once(set.to_vec(), left, lease, worker_id, claimed).await?;
        }
        Ok(claimed.deliver())
    }

    /// Ends a message that was delivered, and says whether it was ended before.
    pub async fn mark_projected(&self, claim: HeldClaim) -> Result<bool, EngineError> {
        self.core.check_outboxes("claims_of")?;
        let Found::Held(token, task) = self.core.find_message(&claim).await? else {
            return Ok(true);
        };
        let resolution = projection(ClaimRef { task_id: claim.task_id.clone(), token });
        match self.core.resolve_message(resolution, claim.generation, task.queue).await {
            Ok(resolved) => Ok(resolved.replayed),
            // Somebody was faster. If that one delivered it, it is delivered.
            Err(error) if error.is_stale() || error.is_not_found() => {
                match self.core.find_message(&claim).await? {
                    Found::Projected => Ok(true),
                    Found::Held(..) => Err(EngineError::OutboxClaimMismatch { id: claim.task_id }),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Gives back a message whose delivery failed; it never dies by this.
    pub async fn release_message(
        &self,
        claim: HeldClaim,
        attempt: AttemptReport,
        delay: Duration,
    ) -> Result<Resolved, EngineError> {
        self.core.check_outboxes("claims_of")?;
        let (token, task) = self.core.held_message(&claim).await?;
        let claim_ref = ClaimRef { task_id: claim.task_id.clone(), token };
        let resolution = release(claim_ref, attempt, delay);
        let resolved = self.core.resolve_message(resolution, claim.generation, task.queue).await;
        resolved.map_err(|error| mismatch_if_over(error, claim.task_id))
    }

    /// Gives back a message whose delivery failed, or ends it, by the outboxes' policy. `attempt` is
    /// made of the delay that was decided; `None` if the message is dead then.
    pub async fn fail_message(
        &self,
        claim: HeldClaim,
        attempt: impl FnOnce(Option<Duration>) -> AttemptReport,
    ) -> Result<Resolved, EngineError> {
        self.core.check_outboxes("claims_of")?;
        let (token, task) = self.core.held_message(&claim).await?;
        let failed = task.attempt_count.saturating_add(1);
        let delay = outbox_name::POLICY.delay_after(failed, fastrand::f64());
        let mut attempt = attempt(delay);
        fit_report(&mut attempt);
        let outcome = match delay {
            Some(delay) => Outcome::Retry { attempt, due: Moment::In(delay) },
            None => Outcome::Die { attempt },
        };
        let claim_ref = ClaimRef { task_id: claim.task_id.clone(), token };
        let resolution = Resolution { claim: claim_ref, call: Call::Fail, outcome, strict: false };
        let resolved = self.core.resolve_message(resolution, claim.generation, task.queue).await;
        resolved.map_err(|error| mismatch_if_over(error, claim.task_id))
    }

    /// Counts the messages that wait or are claimed, of one outbox or of all, up to 1,000.
    pub async fn count_unprojected(
        &self,
        outbox: Option<OutboxName>,
    ) -> Result<Vec<(OutboxName, u64)>, EngineError> {
        self.core.check_outboxes("stats")?;
        let outboxes = match outbox {
            Some(outbox) => vec![outbox],
            None => self.core.outboxes(OUTBOXES_MAX).await?,
        };
        self.core
            .call("stats", |storage| async move {
                let counts = outboxes.into_iter().map(|outbox| {
                    let storage = &storage;
                    async move {
                        let stats = storage.stats(outbox.queue()).await?;
                        Ok((outbox, stats.ready + stats.delayed + stats.in_flight))
                    }
                });
                stream::iter(counts).buffered(UNDER_WAY).try_collect().await
            })
            .await
    }
}

/// What a claim of a message names.
pub(crate) enum Found {
    /// A message that was delivered, by whomever.
    Projected,
    /// The message's newest claim.
    Held(ClaimToken, Box<Task>),
}

impl Found {
    /// What a claim names, of the task that it is about and the token that the storage knows.
    pub(crate) fn of(
        id: &TaskId,
        task: Result<Task, EngineError>,
        token: Option<ClaimToken>,
    ) -> Result<Self, EngineError> {
        let missing = || EngineError::OutboxMissing { id: id.clone() };
        let task = task.map_err(|error| if error.is_not_found() { missing() } else { error })?;
        if OutboxName::of_queue(&task.queue).is_none() {
            return Err(missing());
        }
        if task.status == TaskStatus::Succeeded {
            return Ok(Self::Projected);
        }
        let mismatch = || EngineError::OutboxClaimMismatch { id: id.clone() };
        Ok(Self::Held(token.ok_or_else(mismatch)?, Box::new(task)))
    }

    /// The claim, for who wants nothing of a message that is gone.
    pub(crate) fn held(
        found: Result<Self, EngineError>,
        id: &TaskId,
    ) -> Result<(ClaimToken, Box<Task>), EngineError> {
        match found {
            Ok(Self::Held(token, task)) => Ok((token, task)),
            Ok(Self::Projected) | Err(EngineError::OutboxMissing { .. }) => {
                Err(EngineError::OutboxClaimMismatch { id: id.clone() })
            }
            Err(error) => Err(error),
        }
    }
}

pub(crate) fn projection(claim: ClaimRef) -> Resolution {
    let (attempt, result) = (AttemptReport::default(), Bytes::new());
    let outcome = Outcome::Succeed { attempt, result, forget: false };
    Resolution { claim, call: Call::Complete, outcome, strict: false }
}

pub(crate) fn release(claim: ClaimRef, mut attempt: AttemptReport, delay: Duration) -> Resolution {
    fit_report(&mut attempt);
    let outcome = Outcome::Retry { attempt, due: Moment::In(delay) };
    Resolution { claim, call: Call::Reschedule, outcome, strict: false }
}

pub(crate) fn mismatch_if_over(error: EngineError, id: TaskId) -> EngineError {
    let over = error.is_stale() || error.is_not_found();
    if over { EngineError::OutboxClaimMismatch { id } } else { error }
}

impl Core {
    pub(crate) fn check_outboxes(&self, operation: &'static str) -> Result<(), EngineError> {
        if self.has_outboxes { Ok(()) } else { Err(StorageError::Unsupported { operation }.into()) }
    }

    pub(crate) fn admissible_message(&self, message: NewMessage) -> Result<NewTask, EngineError> {
        self.check_outboxes("enqueue")?;
        let NewMessage { outbox, id, envelope, payload_bytes, delay } = message;
        check_size("payload", payload_bytes, COORDINATED_BYTES_MAX)?;
        let beside = (envelope.len() as u64).saturating_sub(payload_bytes);
        check_size("headers", beside, BESIDE_PAYLOAD_BYTES_MAX)?;
        Ok(NewTask {
            id,
            queue: outbox.queue(),
            handler_ref: OutboxName::handler(),
            priority: 0,
            due: Moment::In(delay),
            expires: None,
            created_at: None,
            envelope,
            overrides: Overrides::default(),
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            attempts: Vec::new(),
        })
    }

    /// The outboxes that the storage knows, by name, up to so many.
    async fn outboxes(&self, max: usize) -> Result<Vec<OutboxName>, EngineError> {
        self.call("queue_names", |storage| async move {
            let (mut outboxes, mut after) = (Vec::new(), outbox_name::before_all());
            loop {
                let names = storage.queue_names(Some(after.clone()), NAMES_PAGE).await?;
                let before = outboxes.len();
                outboxes.extend(names.iter().map_while(OutboxName::of_queue));
                let all = outboxes.len() - before < NAMES_PAGE as usize;
                match names.last() {
                    Some(last) if !all && outboxes.len() < max => after = last.clone(),
                    _ => break,
                }
            }
            outboxes.truncate(max);
            Ok(outboxes)
        })
        .await
    }

    async fn find_message(&self, claim: &HeldClaim) -> Result<Found, EngineError> {
        let (held, id) = (vec![claim.clone()], claim.task_id.clone());
        let tokens = self.call("claims_of", |storage| async move { storage.claims_of(held).await });
        let task = self.call("get", |storage| async move { storage.get(id).await });
        let (tokens, task) = futures::join!(tokens, task);
        Found::of(&claim.task_id, task, tokens?.into_iter().next().flatten())
    }

    async fn held_message(
        &self,
        claim: &HeldClaim,
    ) -> Result<(ClaimToken, Box<Task>), EngineError> {
        Found::held(self.find_message(claim).await, &claim.task_id)
    }

    async fn resolve_message(
        self: &Arc<Self>,
        resolution: Resolution,
        generation: i64,
        queue: QueueName,
    ) -> Result<Resolved, EngineError> {
        let decided = Decided::of_nobody(resolution, generation, queue);
        Batcher::<Resolutions>::join(self, decided).await
    }
}
