//! Maintenance: what outlived its time dies or goes, in bounded steps, and nothing else does.

use super::resolve::CALLS;
use crate::{Fixture, given::*};
use rdq_spi::{
    Age, AttemptError, AttemptOutcome, DeadRetention, Moment, Storage, SweepParams, Swept, TaskId,
    TaskStatus, Timestamp,
};
use std::time::Duration;

const LONG_AGO: Moment = Moment::At(Timestamp::MIN);
const HOUR: Duration = Duration::from_secs(3600);

fn expired(queue: &rdq_spi::QueueName) -> Draft {
    Draft::of(queue).with(|task| task.expires = Some(LONG_AGO))
}

async fn sweep(store: &dyn Storage, params: SweepParams) -> Swept {
    let mut total = Swept::default();
    loop {
        let step = store.sweep(params.clone()).await.expect("sweep");
        assert!(step.expired + step.removed <= u64::from(params.limit), "{step:?}");
        total.expired += step.expired;
        total.removed += step.removed;
        if !step.more {
            return total;
        }
    }
}

pub(crate) async fn what_expired_waiting_becomes_a_dead_letter<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let waiting = expired(&queue).due(Moment::In(LONG_LEASE));
    let dies = enqueue(&*store, waiting).await;
    let lives = Draft::of(&queue).with(|task| task.expires = Some(Moment::In(LONG_LEASE)));
    let lives = enqueue(&*store, lives).await;

    sweep(&*store, SweepParams { expire: true, ..sweep_params(&queue) }).await;

    let task = get(&*store, &dies).await;
    assert_eq!(task.status, TaskStatus::Dead);
    assert_eq!((task.attempt_count, task.attempts.len()), (1, 1));
    assert_eq!(task.attempts[0].outcome, Some(AttemptOutcome::PermanentFailure));
    let error_type = task.attempts[0].error.as_ref().map(|error| error.error_type.as_str());
    assert_eq!(error_type, Some(AttemptError::EXPIRED));
    assert_eq!(task.expires_at, Some(Timestamp::MIN));
    assert!(
        task.finished_at >= Some(task.created_at) && task.next_attempt_at.is_none(),
        "{task:?}"
    );
    assert_eq!(get(&*store, &lives).await.status, TaskStatus::Pending);
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [dies]);
}

pub(crate) async fn what_expires_in_flight_is_taken_from_its_holder<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let soon = Duration::from_millis(300);
    let draft = Draft::of(&queue).with(|task| task.expires = Some(Moment::In(soon)));
    let id = enqueue(&*store, draft).await;
    let Some(claimed) = claim(&*store, &queue, 1, LONG_LEASE).await.pop() else {
        return; // A machine so slow that it has expired already, and an engine that saw it.
    };
    lapse(soon).await;

    sweep(&*store, SweepParams { expire: true, ..sweep_params(&queue) }).await;

    let dead = get(&*store, &id).await;
    assert_eq!((dead.status, dead.attempt_count), (TaskStatus::Dead, 1));
    assert_eq!(dead.attempts[0].worker_id, claimed.task.claimed_by);
    for call in CALLS {
        let answer = end(&*store, &claimed, call).await;
        let detail = Some(rdq_spi::StaleDetail::Expired);
        assert!(
            matches!(&answer, Err(rdq_spi::StorageError::StaleClaim { detail: it, .. }) if *it == detail),
            "{call:?}: {answer:?}"
        );
    }
    assert!(is_stale(&extend(&*store, heartbeat(&claimed, LONG_LEASE)).await));
    assert_eq!(get(&*store, &id).await, dead);
}

pub(crate) async fn nothing_is_expired_unless_asked<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue(&*store, expired(&queue)).await;

    assert_eq!(sweep(&*store, sweep_params(&queue)).await, Swept::default());

    assert_eq!(get(&*store, &id).await.status, TaskStatus::Pending);
}

pub(crate) async fn expiry_goes_in_bounded_steps<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, other) = (some_queue(), some_queue());
    let drafts: Vec<_> = (0..23).map(|_| expired(&queue)).collect();
    enqueue_all(&*store, &drafts).await;
    let foreign = enqueue(&*store, expired(&other)).await;

    let params = SweepParams { expire: true, limit: 5, ..sweep_params(&queue) };
    let first = store.sweep(params.clone()).await.expect("sweep");
    assert!(first.expired <= 5 && first.more, "{first:?}");
    let rest = sweep(&*store, params.clone()).await;

    assert_eq!(first.expired + rest.expired, 23);
    assert_eq!(sweep(&*store, params).await, Swept::default(), "idempotent");
    assert_eq!(get(&*store, &foreign).await.status, TaskStatus::Pending, "of another queue");
}

/// A succeeded, a cancelled, a dead, a pending and a held task.
async fn one_of_each(store: &dyn Storage, queue: &rdq_spi::QueueName) -> [TaskId; 5] {
    let done = enqueue_one(store, queue).await;
    complete(store, &claim_one(store, queue, LONG_LEASE).await).await;
    let cancelled = enqueue_one(store, queue).await;
    cancel(store, &cancelled).await.expect("cancel");
    let dead = dead_letter(store, Draft::of(queue), "t").await;
    let held = enqueue_one(store, queue).await;
    claim_one(store, queue, LONG_LEASE).await;
    [done, cancelled, dead, enqueue_one(store, queue).await, held]
}

pub(crate) async fn retention_removes_what_is_older_and_nothing_else<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (old, zero) = (Some(Age::LongerThan(HOUR)), Some(Age::LongerThan(Duration::ZERO)));
    let keep_dead = Some(DeadRetention { queue: Some(HOUR) });
    let drop_dead = Some(DeadRetention { queue: Some(Duration::ZERO) });
    for (succeeded, cancelled, dead, removed) in [
        (old, old, keep_dead, [false, false, false]),
        (None, None, None, [false, false, false]),
        (zero, None, None, [true, false, false]),
        (None, zero, None, [false, true, false]),
        (None, None, drop_dead, [false, false, true]),
        (zero, zero, drop_dead, [true, true, true]),
    ] {
        let queue = some_queue();
        let tasks = one_of_each(&*store, &queue).await;
        lapse(Duration::ZERO).await; // older than zero

        let params = SweepParams {
            succeeded_older_than: succeeded,
            cancelled_older_than: cancelled,
            dead,
            ..sweep_params(&queue)
        };
        let swept = sweep(&*store, params).await;

        let expected = removed.iter().filter(|it| **it).count();
        assert_eq!(swept.removed, u64::try_from(expected).expect("few"));
        for (id, removed) in tasks.iter().zip(removed.into_iter().chain([false, false])) {
            assert_eq!(is_not_found(&store.get(id.clone()).await), removed, "{id}");
        }
    }
}

pub(crate) async fn an_instant_bounds_retention_exclusively<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    complete(&*store, &claim_one(&*store, &queue, LONG_LEASE).await).await;
    let finished = get(&*store, &id).await.finished_at.expect("succeeded");

    for (before, removed) in [(finished, 0), (finished.after(Duration::from_millis(1)), 1)] {
        let age = Some(Age::Before(before));
        let params = SweepParams { succeeded_older_than: age, ..sweep_params(&queue) };
        assert_eq!(sweep(&*store, params).await.removed, removed);
    }
}

pub(crate) async fn a_dead_letters_own_retention_wins<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let keeping = |own| Draft::of(&queue).with(|task| task.overrides.retention_dead = Some(own));
    let brief = dead_letter(&*store, keeping(Duration::from_millis(1)), "t").await;
    let long = dead_letter(&*store, keeping(HOUR), "t").await;
    let plain = dead_letter(&*store, Draft::of(&queue), "t").await;
    lapse(Duration::from_millis(1)).await;
    let dead_by = |queue_retention| SweepParams {
        dead: Some(DeadRetention { queue: queue_retention }),
        ..sweep_params(&queue)
    };

    sweep(&*store, dead_by(None)).await;
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [plain, long.clone()]);
    sweep(&*store, dead_by(Some(Duration::ZERO))).await;
    assert_eq!(task_ids(&dead_letters(&*store, &queue).await), [long]);
    assert!(is_not_found(&store.get(brief).await));
}

pub(crate) async fn removal_goes_in_bounded_steps<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 13).await;
    for claimed in claim(&*store, &queue, 13, LONG_LEASE).await {
        complete(&*store, &claimed).await;
    }
    lapse(Duration::ZERO).await;

    let params = SweepParams {
        succeeded_older_than: Some(Age::LongerThan(Duration::ZERO)),
        limit: 4,
        ..sweep_params(&queue)
    };
    let first = store.sweep(params.clone()).await.expect("sweep");

    assert!(first.removed <= 4 && first.more, "{first:?}");
    assert_eq!(first.removed + sweep(&*store, params).await.removed, 13);
    assert_eq!(list_all(&*store, &queue).await, []);
}

pub(crate) async fn a_redriven_task_that_expired_dies_again<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue(&*store, expired(&queue).due(Moment::In(LONG_LEASE))).await;
    let expire = SweepParams { expire: true, ..sweep_params(&queue) };
    sweep(&*store, expire.clone()).await;
    redrive_all(&*store, &queue).await;

    sweep(&*store, expire).await;

    let task = get(&*store, &id).await;
    assert_eq!((task.status, task.redrive_count, task.attempts.len()), (TaskStatus::Dead, 1, 2));
    assert_eq!(end_of(&task), Some(AttemptError::EXPIRED));
}

fn end_of(task: &rdq_spi::Task) -> Option<&str> {
    task.attempts.last()?.error.as_ref().map(|error| error.error_type.as_str())
}
