//! Claims: who gets what, and nobody twice.

use crate::{Fixture, given::*};
use rdq_spi::TaskStatus;

pub(crate) async fn a_task_is_handed_out_once<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    let task = enqueue_one(&*store, &queue).await;

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    assert_eq!(claimed.task.id, task);
    assert_eq!(claim(&*store, &queue, 10, LONG_LEASE).await, []);
    assert_eq!(claim(&*other, &queue, 10, LONG_LEASE).await, []);
    assert_eq!(get(&*other, &task).await.status, TaskStatus::InFlight);
}

pub(crate) async fn a_task_with_spent_attempts_is_handed_out<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let spent = Draft::of(&queue).with(|task| {
        task.overrides.max_attempts = Some(1);
        task.attempt_count = 7;
    });
    let task = enqueue(&*store, spent).await;

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    assert_eq!((claimed.task.id, claimed.task.attempt_count), (task, 7), "a storage has no policy");
}
