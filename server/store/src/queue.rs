//! Queues: enqueue, claim, look, sweep.

use crate::{
    Job, JobHandle, Result, encode_payload,
    error::named,
    job,
    payload::{CONTENT_TYPE, HANDLER},
};
use bytes::Bytes;
use prost::Message as _;
use rdq_engine::{ClaimRequest, Engine, EngineError, Submission, new_id};
use rdq_proto::v1;
use rdq_spi::{Moment, NewTask, Overrides, QueueName, TaskId, Timestamp, WorkerId};
use serde::Serialize;
use std::time::Duration;

/// What travels on each task that a handle enqueues, as its overrides of the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOpts {
    /// How long a claim holds unless it is extended; 300 seconds.
    pub visibility_timeout: Duration,
    /// How often a task is tried; 3.
    pub max_attempts: u32,
    /// The backoff after the first failure; 5 seconds.
    pub backoff_base: Duration,
    /// How long a dead letter is kept; as the queue says, for ever by default.
    pub dead_letter_retention: Option<Duration>,
}

impl Default for QueueOpts {
    fn default() -> Self {
        Self {
            visibility_timeout: Duration::from_secs(300),
            max_attempts: 3,
            backoff_base: Duration::from_secs(5),
            dead_letter_retention: None,
        }
    }
}

/// What one task asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnqueueOpts {
    /// Its id, which makes the enqueueing idempotent; a ULID if unset.
    pub id: Option<String>,
    /// Ready after this; wins over `run_at`.
    pub delay: Option<Duration>,
    /// Ready at this instant; now if neither is set.
    pub run_at: Option<Timestamp>,
    /// Higher goes first.
    pub priority: i32,
    /// How often it is tried; the queue's if unset.
    pub max_attempts: Option<u32>,
    /// Dead if it is not done so long after now; never if unset.
    pub expires: Option<Duration>,
}

/// A queue of tasks.
#[derive(Debug, Clone)]
pub struct Queue {
    pub(crate) engine: Engine,
    pub(crate) name: QueueName,
    pub(crate) opts: QueueOpts,
}

impl Queue {
    /// Enqueues a task, and answers its id.
    pub async fn enqueue<T: Serialize + ?Sized>(
        &self,
        opts: EnqueueOpts,
        payload: &T,
    ) -> Result<String> {
        let task = submission(&self.name, &self.opts, opts, &encode_payload(payload)?)?;
        let id = task.task.id.to_string();
        self.engine.enqueue(task).await?;
        Ok(id)
    }

    /// Claims the next task that is ready, if one is.
    pub async fn claim_one(&self, worker_id: &str) -> Result<Option<JobHandle>> {
        Ok(self.claim_batch(worker_id, 1).await?.pop())
    }

    /// Claims up to so many tasks that are ready; at or below 0 none.
    pub async fn claim_batch(&self, worker_id: &str, limit: i64) -> Result<Vec<JobHandle>> {
        let worker_id = named("worker_id", WorkerId::new(worker_id))?;
        let limit = u32::try_from(limit.max(0)).unwrap_or(u32::MAX);
        let queues = vec![self.name.clone()];
        let claimed =
            self.engine.claim(ClaimRequest { queues, limit, lease: None, worker_id }).await?;
        Ok(claimed.into_iter().map(|task| job::claimed(self.engine.clone(), task)).collect())
    }

    /// Ends many claims whose work is done, and answers how many were good to their end.
    pub async fn ack_batch(&self, jobs: Vec<JobHandle>) -> Result<usize> {
        job::ack_all(&self.engine, jobs).await
    }

    /// Ends a task for good, and says whether that changed anything.
    pub async fn cancel(&self, id: &str) -> Result<bool> {
        if self.get_job(id).await?.is_none() {
            return Ok(false);
        }
        let id = named("id", TaskId::new(id))?;
        match self.engine.cancel(id).await {
            Ok(cancelled) => Ok(cancelled.changed),
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a task of this queue in any state.
    pub async fn get_job(&self, id: &str) -> Result<Option<Job>> {
        let id = named("id", TaskId::new(id))?;
        match self.engine.get(id, None).await {
            Ok(task) if task.queue == self.name => Ok(Some(Job::of(task))),
            Ok(_) => Ok(None),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves what has expired to the dead letters and enforces retention; answers how many tasks
    /// were moved or removed. A server's maintenance does so once a minute.
    pub async fn sweep_expired(&self) -> Result<u64> {
        let mut count = 0;
        loop {
            let swept = self.engine.sweep_expired(self.name.clone()).await?;
            count += swept.expired + swept.removed;
            if !swept.more {
                return Ok(count);
            }
        }
    }
}

pub(crate) fn is_not_found(error: &EngineError) -> bool {
    let EngineError::Storage(cause) = error else { return false };
    matches!(**cause, rdq_spi::StorageError::NotFound { .. })
}

/// A task to enqueue, its envelope as a client would send it.
pub(crate) fn submission(
    queue: &QueueName,
    queue_opts: &QueueOpts,
    opts: EnqueueOpts,
    payload: &Bytes,
) -> Result<Submission> {
    let id = match opts.id {
        Some(id) => named("id", TaskId::new(id))?,
        None => new_id(),
    };
    let due = match (opts.delay, opts.run_at) {
        (Some(delay), _) => Moment::In(delay),
        (None, Some(at)) => Moment::At(at),
        (None, None) => Moment::NOW,
    };
    let handler_ref = named("handler_ref", QueueName::new(HANDLER))?;
    let overrides = Overrides {
        max_attempts: Some(opts.max_attempts.unwrap_or(queue_opts.max_attempts)),
        lease: Some(queue_opts.visibility_timeout),
        initial_backoff: Some(queue_opts.backoff_base),
        retention_dead: queue_opts.dead_letter_retention,
    };
    let wire = |duration: Duration| prost_types::Duration::try_from(duration).ok();
    let envelope = v1::Task {
        id: id.to_string(),
        queue: queue.to_string(),
        handler_ref: HANDLER.to_owned(),
        payload: payload.clone(),
        payload_content_type: CONTENT_TYPE.to_owned(),
        priority: opts.priority,
        max_attempts: overrides.max_attempts.and_then(|count| i32::try_from(count).ok()),
        lease: overrides.lease.and_then(wire),
        initial_backoff: overrides.initial_backoff.and_then(wire),
        retention_dead: overrides.retention_dead.and_then(wire),
        ..v1::Task::default()
    };
    Ok(Submission {
        payload_bytes: payload.len() as u64,
        task: NewTask {
            id,
            queue: queue.clone(),
            handler_ref,
            priority: opts.priority,
            due,
            expires: opts.expires.map(Moment::In),
            created_at: None,
            envelope: envelope.encode_to_vec().into(),
            overrides,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            attempts: Vec::new(),
        },
    })
}
