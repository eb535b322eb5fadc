//! Scene words: what the stories are told with. They hold no rule and judge nothing, but that a call
//! which the story takes for granted succeeds.

mod coordination;
mod ledger;
mod letters;

pub(crate) use coordination::*;
pub(crate) use ledger::*;
pub(crate) use letters::*;

use crate::{Random, envelope};
use bytes::Bytes;
use rdq_spi::{
    Admission, Attempt, AttemptError, AttemptReport, Call, Cancelled, Claim, ClaimParams,
    ClaimQueue, ClaimRef, Claimed, ExtendParams, Extended, Moment, NewTask, Outcome, Overrides,
    QueueName, Resolution, Resolved, Result, Storage, StorageError, Task, TaskId, Timestamp,
    WorkerId,
};
use std::time::Duration;

/// A lease that lapses within the story.
pub(crate) const SHORT_LEASE: Duration = Duration::from_millis(60);
/// A lease that outlasts the story, on however slow a machine.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(3600);
/// What cases put on their tasks so that the queue's own policy decides nothing.
const MANY_ATTEMPTS: u32 = 100_000;
/// More than any page or claim of the kit holds.
pub(crate) const BYTES_MAX: usize = 3 << 20;

/// A queue that nobody else uses.
pub(crate) fn some_queue() -> QueueName {
    name(&format!("kit-{:016x}", Random::any_seed()))
}

/// A name that the story knows to be one.
pub(crate) fn name(text: &str) -> QueueName {
    QueueName::new(text).expect("a name")
}

/// An id that nobody else uses.
pub(crate) fn some_id() -> TaskId {
    id(&format!("{:016x}{:016x}", Random::any_seed(), Random::any_seed()))
}

/// An id that the story knows to be one.
pub(crate) fn id(text: &str) -> TaskId {
    TaskId::new(text).expect("an id")
}

/// A worker.
pub(crate) fn worker(text: &str) -> WorkerId {
    WorkerId::new(text).expect("a worker")
}

/// A task to be admitted: its typed fields, and what only the envelope holds.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) task: NewTask,
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) unknown: Bytes,
}

impl Draft {
    /// Due now, with attempts to spare.
    pub(crate) fn of(queue: &QueueName) -> Self {
        let task = NewTask {
            id: some_id(),
            queue: queue.clone(),
            handler_ref: name("handler"),
            priority: 0,
            due: Moment::NOW,
            expires: None,
            created_at: None,
            envelope: Bytes::new(),
            overrides: Overrides { max_attempts: Some(MANY_ATTEMPTS), ..Overrides::default() },
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            attempts: Vec::new(),
        };
        let payload = Bytes::from_static(b"payload");
        Self { task, payload, headers: Vec::new(), unknown: Bytes::new() }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut NewTask)) -> Self {
        change(&mut self.task);
        self
    }

    pub(crate) fn due(self, due: Moment) -> Self {
        self.with(|task| task.due = due)
    }

    pub(crate) fn priority(self, priority: i32) -> Self {
        self.with(|task| task.priority = priority)
    }

    pub(crate) fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// The task, with the envelope that agrees with it.
    pub(crate) fn build(&self) -> NewTask {
        let envelope = envelope::of(&self.task, &self.payload, &self.headers, &self.unknown);
        NewTask { envelope, ..self.task.clone() }
    }
}

/// Admits tasks, in as many calls as the storage wants.
pub(crate) async fn admit(store: &dyn Storage, drafts: &[Draft]) -> Vec<Result<Admission>> {
    let tasks: Vec<_> = drafts.iter().map(Draft::build).collect();
    let at_once = if store.capabilities().batch_enqueue { 500 } else { 1 };
    let mut answers = Vec::new();
    for chunk in tasks.chunks(at_once) {
        answers.extend(store.enqueue(chunk.to_vec()).await.expect("enqueue"));
    }
    assert_eq!(answers.len(), drafts.len(), "one answer for each task");
    answers
}

/// Admits a task that is new.
pub(crate) async fn enqueue(store: &dyn Storage, draft: Draft) -> TaskId {
    enqueue_all(store, &[draft]).await.remove(0)
}

/// Admits tasks that are new.
pub(crate) async fn enqueue_all(store: &dyn Storage, drafts: &[Draft]) -> Vec<TaskId> {
    for answer in admit(store, drafts).await {
        assert!(answer.as_ref().is_ok_and(|admission| admission.created), "{answer:?}");
    }
    drafts.iter().map(|draft| draft.task.id.clone()).collect()
}

/// Admits plain tasks, due now.
pub(crate) async fn enqueue_some(store: &dyn Storage, queue: &QueueName, n: usize) -> Vec<TaskId> {
    let drafts: Vec<_> = (0..n).map(|_| Draft::of(queue)).collect();
    enqueue_all(store, &drafts).await
}

/// Admits a plain task, due now.
pub(crate) async fn enqueue_one(store: &dyn Storage, queue: &QueueName) -> TaskId {
    enqueue(store, Draft::of(queue)).await
}

/// A call that claims up to `limit` tasks from one queue.
pub(crate) fn claim_params(queue: &QueueName, limit: u32, lease: Duration) -> ClaimParams {
    ClaimParams {
        queues: vec![claim_queue(queue)],
        limit,
        bytes_max: BYTES_MAX,
        lease: Some(lease),
        worker_id: worker("worker"),
    }
}

/// A queue to claim from, with what an engine resolves by default.
pub(crate) fn claim_queue(queue: &QueueName) -> ClaimQueue {
    let (lease, lease_max) = (Duration::from_secs(60), Duration::from_secs(12 * 3600));
    ClaimQueue { queue: queue.clone(), lease, lease_max }
}

/// Claims once, as the call says.
pub(crate) async fn claim_as(store: &dyn Storage, params: ClaimParams) -> Claimed {
    let mut answers = store.claim_due(vec![params]).await.expect("claim_due");
    assert_eq!(answers.len(), 1, "one answer for one claim");
    answers.remove(0).expect("a claim")
}

/// Claims once, up to `limit` tasks.
pub(crate) async fn claim(
    store: &dyn Storage,
    queue: &QueueName,
    limit: u32,
    lease: Duration,
) -> Vec<Claim> {
    claim_as(store, claim_params(queue, limit, lease)).await.claims
}

/// Claims the one task that is due.
pub(crate) async fn claim_one(store: &dyn Storage, queue: &QueueName, lease: Duration) -> Claim {
    let mut claims = claim(store, queue, 1, lease).await;
    assert_eq!(claims.len(), 1, "a task of {queue} is due");
    claims.remove(0)
}

/// Waits until a lease that just began has run out. The kit has no clock: it lets more time pass
/// than the lease lasts.
pub(crate) async fn lapse(lease: Duration) {
    tokio::time::sleep(lease + Duration::from_millis(25)).await;
}

/// The claim's name.
pub(crate) fn claim_ref(claim: &Claim) -> ClaimRef {
    ClaimRef { task_id: claim.task.id.clone(), token: claim.token.clone() }
}

/// A failure with every field set.
pub(crate) fn failure(error_type: &str) -> AttemptReport {
    let error = AttemptError {
        error_type: error_type.to_owned(),
        message: "it broke".to_owned(),
        detail: "{\"code\": 7}".to_owned(),
        stack: "at main".to_owned(),
    };
    AttemptReport { error: Some(error), extra: Bytes::new() }
}

/// What each of the five calls makes of a task by itself.
pub(crate) fn usual_outcome(call: Call) -> Outcome {
    let attempt = failure("t");
    match call {
        Call::Complete => succeed(b"result"),
        Call::Reschedule | Call::Fail => Outcome::Retry { attempt, due: Moment::NOW },
        Call::DeadLetter => Outcome::Die { attempt },
        Call::Release => Outcome::GiveBack { due: Moment::NOW },
    }
}

/// The outcome of a completion.
pub(crate) fn succeed(result: &'static [u8]) -> Outcome {
    let attempt = AttemptReport::default();
    Outcome::Succeed { attempt, result: Bytes::from_static(result), forget: false }
}

/// A resolution of this claim, lenient.
pub(crate) fn resolution(claim: &Claim, call: Call, outcome: Outcome) -> Resolution {
    Resolution { claim: claim_ref(claim), call, outcome, strict: false }
}

/// Ends one claim.
pub(crate) async fn resolve(store: &dyn Storage, resolution: Resolution) -> Result<Resolved> {
    let mut answers = store.resolve(vec![resolution]).await.expect("resolve");
    assert_eq!(answers.len(), 1, "one answer for one resolution");
    answers.remove(0)
}

/// Ends one claim as this call usually does.
pub(crate) async fn end(store: &dyn Storage, claim: &Claim, call: Call) -> Result<Resolved> {
    resolve(store, resolution(claim, call, usual_outcome(call))).await
}

/// Completes a claim that is good.
pub(crate) async fn complete(store: &dyn Storage, claim: &Claim) -> Resolved {
    end(store, claim, Call::Complete).await.expect("complete")
}

/// A heartbeat of this claim, lenient.
pub(crate) fn heartbeat(claim: &Claim, lease: Duration) -> ExtendParams {
    let claim = claim_ref(claim);
    ExtendParams { claim, lease, held_max: None, progress: None, strict: false }
}

/// Keeps one claim.
pub(crate) async fn extend(store: &dyn Storage, params: ExtendParams) -> Result<Extended> {
    let mut answers = store.extend_leases(vec![params]).await.expect("extend_leases");
    assert_eq!(answers.len(), 1, "one answer for one heartbeat");
    answers.remove(0)
}

/// The task as it is now.
pub(crate) async fn get(store: &dyn Storage, task: &TaskId) -> Task {
    store.get(task.clone()).await.expect("get")
}

/// A record as another system might hand it over.
pub(crate) fn carried_over(attempt_no: u32) -> Attempt {
    Attempt {
        attempt_no,
        started_at: Some(Timestamp::from_millis(1_000_000_000_000 + i64::from(attempt_no))),
        finished_at: Some(Timestamp::from_millis(1_000_000_000_500 + i64::from(attempt_no))),
        outcome: Some(rdq_spi::AttemptOutcome::RetryableFailure),
        worker_id: Some(worker("elsewhere")),
        error: failure("before").error,
        extra: Bytes::new(),
        folded_count: 0,
    }
}

/// Cancels one task.
pub(crate) async fn cancel(store: &dyn Storage, task: &TaskId) -> Result<Cancelled> {
    let mut answers = store.cancel(vec![task.clone()]).await.expect("cancel");
    assert_eq!(answers.len(), 1, "one answer for one task");
    answers.remove(0)
}

/// Whose claims these are, in their order.
pub(crate) fn ids(claims: &[Claim]) -> Vec<TaskId> {
    claims.iter().map(|claim| claim.task.id.clone()).collect()
}

/// Whose answers these are, in their order.
pub(crate) fn task_ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id.clone()).collect()
}

/// Whether this is the answer to a task that is not there.
pub(crate) fn is_not_found<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(StorageError::NotFound { .. }))
}

/// Whether this is the answer to a token that was superseded or never issued.
pub(crate) fn is_stale<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(StorageError::StaleClaim { .. }))
}
