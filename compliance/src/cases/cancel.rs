//! Cancellation: the end of what is unfinished, and nothing else.

use super::resolve::CALLS;
use crate::{Fixture, given::*};
use rdq_spi::{AttemptOutcome, Call, StaleDetail, StorageError, TaskStatus};

pub(crate) async fn a_pending_task_is_cancelled_without_a_record<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;

    let answer = cancel(&*store, &id).await.expect("cancel");

    assert_eq!((answer.status, answer.changed), (TaskStatus::Cancelled, true));
    let task = get(&*store, &id).await;
    assert_eq!(task.status, TaskStatus::Cancelled);
    assert_eq!((task.attempt_count, task.attempts.len()), (0, 0));
    assert!(task.finished_at >= Some(task.created_at), "{task:?}");
    assert_eq!(task.next_attempt_at, None);
    assert_eq!(claim(&*store, &queue, 1, LONG_LEASE).await, []);
}

pub(crate) async fn a_task_in_flight_is_taken_from_its_holder<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    let answer = cancel(&*other, &id).await.expect("cancel");

    assert_eq!((answer.status, answer.changed), (TaskStatus::Cancelled, true));
    let cancelled = get(&*store, &id).await;
    assert_eq!((cancelled.attempt_count, cancelled.attempts.len()), (1, 1));
    let record = &cancelled.attempts[0];
    assert_eq!(record.outcome, Some(AttemptOutcome::Cancelled));
    assert_eq!(record.worker_id, claimed.task.claimed_by);
    assert_eq!(record.started_at, claimed.task.claimed_at);
    assert_eq!((cancelled.claimed_at, cancelled.lease_expires_at), (None, None));
    for call in CALLS {
        assert_detail(&end(&*store, &claimed, call).await, StaleDetail::Cancelled);
    }
    assert_detail(&extend(&*store, heartbeat(&claimed, LONG_LEASE)).await, StaleDetail::Cancelled);
    assert_eq!(get(&*store, &id).await, cancelled);
}

pub(crate) async fn a_lapsed_task_is_cancelled_as_one_in_flight<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;

    cancel(&*store, &id).await.expect("cancel");

    assert_eq!(claim(&*store, &queue, 1, LONG_LEASE).await, []);
    assert_eq!(get(&*store, &id).await.status, TaskStatus::Cancelled);
    assert_detail(&end(&*store, &claimed, Call::Complete).await, StaleDetail::Cancelled);
}

pub(crate) async fn a_finished_task_does_not_change<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for (call, status) in [
        (Some(Call::Complete), TaskStatus::Succeeded),
        (Some(Call::DeadLetter), TaskStatus::Dead),
        (None, TaskStatus::Cancelled),
    ] {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        match call {
            Some(call) => {
                let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
                end(&*store, &claimed, call).await.expect("resolved");
            }
            None => assert!(cancel(&*store, &id).await.expect("cancel").changed),
        }
        let before = get(&*store, &id).await;

        let answer = cancel(&*store, &id).await.expect("an answer");

        assert_eq!((answer.status, answer.changed), (status, false));
        assert_eq!(get(&*store, &id).await, before);
    }
}

pub(crate) async fn a_batch_is_answered_each<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let tasks = enqueue_some(&*store, &queue, 2).await;
    let missing = some_id();

    let asked = vec![tasks[0].clone(), missing, tasks[1].clone(), tasks[0].clone()];
    let answers = store.cancel(asked).await.expect("cancel");

    assert!(is_not_found(&answers[1]), "{answers:?}");
    let changed = |i: usize| answers[i].as_ref().map(|it| it.changed).ok();
    assert_eq!([changed(0), changed(2), changed(3)], [Some(true), Some(true), Some(false)]);
}

fn assert_detail<T: std::fmt::Debug>(answer: &rdq_spi::Result<T>, expected: StaleDetail) {
    assert!(
        matches!(answer, Err(StorageError::StaleClaim { detail: Some(detail), .. })
            if *detail == expected),
        "{answer:?}"
    );
}
