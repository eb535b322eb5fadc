//! A task as an application sees it, and its claim.

use crate::{Result, decode_payload};
use bytes::Bytes;
use prost::Message as _;
use rdq_engine::{
    Action, ClaimedTask, Engine, EngineError, ExtendRequest, Judgement, ResolveRequest,
};
use rdq_proto::v1;
use rdq_spi::{AttemptError, AttemptReport, Moment, StorageError, Task, TaskStatus, Timestamp};
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Where a task stands.
pub type JobState = TaskStatus;

/// A task.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// What was enqueued.
    pub payload: Bytes,
    /// Where it stands.
    pub state: JobState,
    /// Higher goes first.
    pub priority: i32,
    /// Attempts that are over.
    pub attempts: u32,
    /// How often it is tried, if it says so itself.
    pub max_attempts: Option<u32>,
    /// When it is ready; set while it waits.
    pub run_at: Option<Timestamp>,
    /// When it dies unfinished.
    pub expires_at: Option<Timestamp>,
    /// Who holds it.
    pub worker_id: Option<String>,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// When the claim's deadline is.
    pub claim_expires_at: Option<Timestamp>,
    /// What the last failure said.
    pub last_error: Option<String>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it finished, died or was cancelled.
    pub finished_at: Option<Timestamp>,
}

impl Job {
    pub(crate) fn of(task: Task) -> Self {
        // What this crate did not enqueue may hold anything; then the payload is empty.
        let envelope = v1::Task::decode(task.envelope).unwrap_or_default();
        let failures = task.attempts.into_iter().rev().filter_map(|attempt| attempt.error);
        let last_error = failures.map(|error| error.message).next();
        Self {
            id: task.id.to_string(),
            queue: task.queue.to_string(),
            payload: envelope.payload,
            state: task.status,
            priority: task.priority,
            attempts: task.attempt_count,
            max_attempts: task.overrides.max_attempts,
            run_at: task.next_attempt_at,
            expires_at: task.expires_at,
            worker_id: task.claimed_by.map(|worker| worker.to_string()),
            claimed_at: task.claimed_at,
            claim_expires_at: task.lease_expires_at,
            last_error,
            created_at: task.created_at,
            finished_at: task.finished_at,
        }
    }

    /// Reads the payload.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        decode_payload(&self.payload)
    }
}

/// A claim of a task. Its operations answer `false`, and change nothing, once the claim is over: its
/// deadline passed, or somebody else claimed or cancelled the task. A handle that is dropped leaves
/// the task to its deadline.
#[derive(Debug)]
#[must_use = "a claim that is not ended waits for its deadline"]
pub struct JobHandle {
    engine: Engine,
    token: Bytes,
    generation: i64,
    job: Job,
}

pub(crate) fn claimed(engine: Engine, claimed: ClaimedTask) -> JobHandle {
    let ClaimedTask { task, token, generation, .. } = claimed;
    JobHandle { engine, token, generation, job: Job::of(task) }
}

impl JobHandle {
    /// The task as the claim left it.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// The claim's fencing number: it grows with every claim of the task, for ever.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// The work is done.
    pub async fn ack(self) -> Result<bool> {
        let attempt = AttemptReport::default();
        self.end(Action::Complete { attempt, result: Bytes::new() }).await
    }

    /// The work failed: again after `delay`, or after the queue's backoff if unset. Once its attempts
    /// are spent the task is dead.
    pub async fn retry(self, error: Option<&str>, delay: Option<Duration>) -> Result<bool> {
        let attempt = failure(error);
        self.end(match delay {
            Some(delay) => Action::Reschedule { attempt, due: Moment::In(delay) },
            None => Action::Fail { attempt, judgement: Some(Judgement::Retryable) },
        })
        .await
    }

    /// The work failed for good: the task is dead.
    pub async fn fail(self, error: Option<&str>) -> Result<bool> {
        self.end(Action::DeadLetter { attempt: failure(error) }).await
    }

    /// Moves the claim's deadline to `extend` from now.
    pub async fn heartbeat(&self, extend: Duration) -> Result<bool> {
        let request = ExtendRequest {
            task_id: rdq_spi::TaskId::stored(self.job.id.as_str()),
            token: self.token.clone(),
            lease: Some(extend),
            progress: None,
            strict: true,
        };
        held(self.engine.extend(request).await.map(drop))
    }

    async fn end(self, action: Action) -> Result<bool> {
        let engine = self.engine.clone();
        held(engine.resolve(self.request(action)).await.map(drop))
    }

    fn request(self, action: Action) -> ResolveRequest {
        ResolveRequest {
            task_id: rdq_spi::TaskId::stored(self.job.id),
            token: self.token,
            action,
            decided_fail: false,
            strict: true,
        }
    }
}

/// Completes claims, and counts those that were good.
pub(crate) async fn ack_all(engine: &Engine, jobs: Vec<JobHandle>) -> Result<usize> {
    let complete = || Action::Complete { attempt: AttemptReport::default(), result: Bytes::new() };
    let requests = jobs.into_iter().map(|job| job.request(complete())).collect();
    let mut count = 0;
    for answer in engine.resolve_batch(requests).await {
        count += usize::from(held(answer.map(drop))?);
    }
    Ok(count)
}

fn failure(message: Option<&str>) -> AttemptReport {
    let error = AttemptError {
        error_type: "job".to_owned(),
        message: message.unwrap_or("failed").to_owned(),
        ..AttemptError::default()
    };
    AttemptReport { error: Some(error), extra: Bytes::new() }
}

/// Whether the claim was good; what is over is an answer, not an error.
fn held(answer: std::result::Result<(), EngineError>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(EngineError::Storage(cause))
            if matches!(
                *cause,
                StorageError::StaleClaim { .. } | StorageError::NotFound { .. }
            ) =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
