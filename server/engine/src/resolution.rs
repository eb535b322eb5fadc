//! How claims end: what a `Fail` becomes is decided here, by the queue's policy of this moment.

use crate::{
    Engine, EngineError, Judgement,
    admission::run_accepted,
    batcher::{Batcher, Kind, about},
    classification::classify,
    core::{Core, refuse_all, spread},
    feed::Ended,
    limits::check_blob,
    queues::Snapshot,
    report::fit_report,
    retry::RetryPolicy,
    token::ClaimContext,
};
use bytes::Bytes;
use rdq_spi::{
    AttemptReport, Call, ClaimRef, Moment, Outcome, QueueName, Resolution, Resolved, StorageError,
    TaskId,
};
use std::{sync::Arc, time::Duration};

/// A claim to end.
#[derive(Debug, Clone)]
pub struct ResolveRequest {
    /// The task.
    pub task_id: TaskId,
    /// The claim's token, as the claim answered it.
    pub token: Bytes,
    /// How it ends.
    pub action: Action,
    /// An engine that stands before this one decided a `Fail`: a repetition is matched as one.
    pub decided_fail: bool,
    /// Refuse it once the lease has run out, whatever the queue says.
    pub strict: bool,
}

/// How a claim ends.
#[derive(Debug, Clone)]
pub enum Action {
    /// The task succeeded.
    Complete {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
        /// What the handler returned, at most 64 KiB.
        result: Bytes,
    },
    /// The attempt failed; the task is due again when the caller says.
    Reschedule {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
        /// When.
        due: Moment,
    },
    /// The task is dead.
    DeadLetter {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
    },
    /// The attempt failed; the queue's policy decides.
    Fail {
        /// What the worker says of the attempt.
        attempt: AttemptReport,
        /// What the worker says of the failure, before any classification.
        judgement: Option<Judgement>,
    },
    /// Given back, unspent.
    Release {
        /// Due again after this.
        delay: Duration,
    },
}

/// A resolution, and what happens here when it is stored.
pub(crate) struct Decided {
    pub(crate) resolution: Resolution,
    pub(crate) ended: Ended,
    pub(crate) queue: QueueName,
}

impl Decided {
    /// Of a claim that no stream of this server holds.
    pub(crate) fn of_nobody(resolution: Resolution, generation: i64, queue: QueueName) -> Self {
        let ended = (0, resolution.claim.task_id.clone(), generation);
        Self { resolution, ended, queue }
    }

    /// When the task is due again by this, if it may be.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        match &self.resolution.outcome {
            Outcome::Retry { due, .. } | Outcome::GiveBack { due } => match due {
                Moment::In(delay) => Some(*delay),
                // Only the storage knows its clock; a claim will tell when it is due.
                Moment::At(_) => Some(Duration::ZERO),
            },
            Outcome::Succeed { .. } | Outcome::Die { .. } => None,
        }
    }
}

impl Engine {
    /// Ends a claim. The same call with the same token succeeds again and changes nothing.
    pub async fn resolve(&self, request: ResolveRequest) -> Result<Resolved, EngineError> {
        let decided = decide(&self.core.queues.snapshot(), request)?;
        Batcher::<Resolutions>::join(&self.core, decided).await
    }

    /// Ends many claims, each with its own answer.
    pub async fn resolve_batch(
        &self,
        requests: Vec<ResolveRequest>,
    ) -> Vec<Result<Resolved, EngineError>> {
        resolve_all(&self.core, requests).await
    }
}

pub(crate) async fn resolve_all(
    core: &Arc<Core>,
    requests: Vec<ResolveRequest>,
) -> Vec<Result<Resolved, EngineError>> {
    let snapshot = core.queues.snapshot();
    let count = requests.len();
    let decided = requests.into_iter().map(|request| decide(&snapshot, request)).collect();
    run_accepted(decided, |decided: Vec<Decided>| async move {
        let accepted = decided.len();
        let run = Resolutions::run(Arc::clone(core), decided);
        core.run(Resolutions::OPERATION, run).await.unwrap_or_else(|e| refuse_all(&e, accepted))
    })
    .await
    .unwrap_or_else(|| refuse_all(&EngineError::Closed, count))
}

/// Reads a token that may be anything.
pub(crate) fn read_token(task_id: &TaskId, token: &Bytes) -> Result<ClaimContext, EngineError> {
    if token.is_empty() {
        return Err(EngineError::invalid("claim_token", "must not be empty"));
    }
    ClaimContext::decode(token).ok_or_else(|| EngineError::stale(task_id.clone()))
}

pub(crate) fn decide(snapshot: &Snapshot, request: ResolveRequest) -> Result<Decided, EngineError> {
    let ResolveRequest { task_id, token, action, decided_fail, strict } = request;
    let context = read_token(&task_id, &token)?;
    let effective = snapshot.effective(&context.queue);
    let call = |call| if decided_fail { Call::Fail } else { call };
    let (call, outcome) = match action {
        Action::Complete { mut attempt, result } => {
            check_blob("result", &result)?;
            fit_report(&mut attempt);
            let forget = effective.retention_succeeded.is_zero();
            (Call::Complete, Outcome::Succeed { attempt, result, forget })
        }
        Action::Reschedule { mut attempt, due } => {
            fit_report(&mut attempt);
            (call(Call::Reschedule), Outcome::Retry { attempt, due })
        }
        Action::DeadLetter { mut attempt } => {
            fit_report(&mut attempt);
            (call(Call::DeadLetter), Outcome::Die { attempt })
        }
        Action::Fail { mut attempt, judgement } => {
            fit_report(&mut attempt);
            let error_type = attempt.error.as_ref().map_or("", |error| &error.error_type);
            let verdict = classify(judgement, error_type, &effective.permanent);
            let policy = policy_of(&effective.retry, &context);
            let failed = context.attempt_count.saturating_add(1);
            let delay = policy.delay_after(failed, fastrand::f64());
            let outcome = match (verdict, delay) {
                (Judgement::Retryable, Some(delay)) => {
                    Outcome::Retry { attempt, due: Moment::In(delay) }
                }
                _ => Outcome::Die { attempt },
            };
            (Call::Fail, outcome)
        }
        Action::Release { delay } => (Call::Release, Outcome::GiveBack { due: Moment::In(delay) }),
    };
    let ended = (context.holder, task_id.clone(), context.generation);
    let claim = ClaimRef { task_id, token: context.storage_token };
    let resolution = Resolution { claim, call, outcome, strict: strict || effective.strict_leases };
    Ok(Decided { resolution, ended, queue: context.queue })
}

/// The queue's policy, and what the task overrides of it.
fn policy_of(queue: &RetryPolicy, context: &ClaimContext) -> RetryPolicy {
    RetryPolicy {
        max_attempts: context.max_attempts.unwrap_or(queue.max_attempts),
        initial_backoff: context.initial_backoff.unwrap_or(queue.initial_backoff),
        ..*queue
    }
}

/// Resolutions of single calls.
pub(crate) struct Resolutions;

impl Kind for Resolutions {
    type Item = Decided;
    type Answer = Resolved;
    const OPERATION: &'static str = "resolve";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.resolutions
    }

    fn bytes(decided: &Decided) -> usize {
        match &decided.resolution.outcome {
            Outcome::Succeed { attempt, result, .. } => report_bytes(attempt) + result.len(),
            Outcome::Retry { attempt, .. } | Outcome::Die { attempt } => report_bytes(attempt),
            Outcome::GiveBack { .. } => 0,
        }
    }

    fn about(decided: &Decided) -> Option<u64> {
        Some(about(&decided.resolution.claim.task_id))
    }

    async fn run(core: Arc<Core>, decided: Vec<Decided>) -> Vec<Result<Resolved, EngineError>> {
        let count = decided.len();
        let mut resolutions = Vec::with_capacity(count);
        let mut ended = Vec::with_capacity(count);
        let mut hints = Vec::new();
        for decided in decided {
            let due_in = decided.due_in().filter(|_| !core.capabilities.notify);
            let Decided { resolution, ended: end, queue } = decided;
            hints.extend(due_in.map(|due_in| (queue, due_in)));
            resolutions.push(resolution);
            ended.push(end);
        }
        let answers = spread(Self::OPERATION, core.storage.resolve(resolutions).await, count);
        let mut over = answers.iter().map(is_over);
        ended.retain(|_| over.next().unwrap_or(false));
        core.feeds.settle(&ended);
        for (queue, due_in) in hints {
            core.hint_in_process(&queue, due_in);
        }
        answers
    }
}

fn report_bytes(report: &AttemptReport) -> usize {
    report.extra.len() + report.error.as_ref().map_or(0, rdq_spi::AttemptError::len_bytes)
}

/// Whether the answer shows that the claim is not live any more.
fn is_over(answer: &Result<Resolved, EngineError>) -> bool {
    match answer {
        Ok(_) => true,
        Err(EngineError::Storage(error)) => {
            matches!(**error, StorageError::StaleClaim { .. } | StorageError::NotFound { .. })
        }
        Err(_) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]
mod tests {
    use super::*;
    use crate::{QueueFile, queues::Queues};
    use rdq_spi::{AttemptError, ClaimToken};

    fn snapshot(change: impl FnOnce(&mut QueueFile)) -> Arc<Snapshot> {
        let mut file = QueueFile::default();
        file.defaults.retry.jitter = Some(0.0);
        change(&mut file);
        Queues::new(file, false).snapshot()
    }

    fn context(attempt_count: u32) -> ClaimContext {
        ClaimContext {
            storage_token: ClaimToken(Bytes::from_static(b"token")),
            holder: 0,
            generation: 1,
            queue: QueueName::new("q").unwrap(),
            attempt_count,
            attempt_no: attempt_count + 1,
            lease: Duration::from_secs(60),
            max_attempts: None,
            initial_backoff: None,
        }
    }

    fn fail(
        snapshot: &Snapshot,
        context: &ClaimContext,
        error_type: &str,
        judgement: Option<Judgement>,
    ) -> Outcome {
        let error = Some(AttemptError::new(error_type, "broken"));
        let attempt = AttemptReport { error, ..AttemptReport::default() };
        let request = ResolveRequest {
            task_id: TaskId::new("t").unwrap(),
            token: context.encode(),
            action: Action::Fail { attempt, judgement },
            decided_fail: false,
            strict: false,
        };
        decide(snapshot, request).unwrap().resolution.outcome
    }

    fn delay_of(outcome: &Outcome) -> Option<Duration> {
        match outcome {
            Outcome::Retry { due: Moment::In(delay), .. } => Some(*delay),
            Outcome::Die { .. } => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_failure_backs_off_until_the_attempts_are_spent() {
        let snapshot = snapshot(|_| {});
        for (attempts_before, expected) in [(0, Some(1)), (1, Some(2)), (3, Some(8)), (4, None)] {
            let outcome = fail(&snapshot, &context(attempts_before), "x", None);
            assert_eq!(delay_of(&outcome), expected.map(Duration::from_secs), "{attempts_before}");
        }
    }

    #[test]
    fn a_tasks_own_overrides_win_over_its_queue() {
        let snapshot = snapshot(|_| {});
        let own = ClaimContext {
            max_attempts: Some(2),
            initial_backoff: Some(Duration::from_secs(9)),
            ..context(0)
        };
        assert_eq!(delay_of(&fail(&snapshot, &own, "x", None)), Some(Duration::from_secs(9)));
        let spent = ClaimContext { attempt_count: 1, ..own };
        assert_eq!(delay_of(&fail(&snapshot, &spent, "x", None)), None);
    }

    #[test]
    fn a_permanent_failure_dies_at_once_unless_the_worker_says_otherwise() {
        let snapshot =
            snapshot(|file| file.defaults.classification.permanent = vec!["http.4*".into()]);
        for (error_type, judgement, dies) in [
            ("http.404", None, true),
            ("http.503", None, false),
            ("http.404", Some(Judgement::Retryable), false),
            ("http.503", Some(Judgement::Permanent), true),
        ] {
            let outcome = fail(&snapshot, &context(0), error_type, judgement);
            assert_eq!(delay_of(&outcome).is_none(), dies, "{error_type} {judgement:?}");
        }
    }

    #[test]
    fn an_empty_token_is_refused_and_garbage_is_stale() {
        let id = TaskId::new("t").unwrap();
        let empty = read_token(&id, &Bytes::new()).unwrap_err();
        assert!(matches!(empty, EngineError::InvalidArgument { field: "claim_token", .. }));
        let garbage = read_token(&id, &Bytes::from_static(b"garbage")).unwrap_err();
        let EngineError::Storage(garbage) = garbage else { panic!("{garbage:?}") };
        assert!(matches!(*garbage, StorageError::StaleClaim { .. }), "{garbage:?}");
    }
}
