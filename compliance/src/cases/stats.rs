//! Counts: the truth at rest.

use super::resolve::CALLS;
use crate::{Fixture, Random, given::*};
use futures::future::join_all;
use rdq_spi::{Moment, QueueStats, TaskStatus, Timestamp};
use std::time::Duration;

pub(crate) async fn an_unknown_queue_has_zeroes<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let stats = store.stats(some_queue()).await.expect("stats");
    assert_eq!(stats, QueueStats::default());
}

pub(crate) async fn every_status_is_counted<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (queue, other) = (some_queue(), some_queue());
    for n in 0..3 {
        dead_letter(&*store, Draft::of(&queue), "t").await;
        let cancelled = enqueue_one(&*store, &queue).await;
        cancel(&*store, &cancelled).await.expect("cancel");
        if n == 0 {
            enqueue_one(&*store, &queue).await;
            complete(&*store, &claim_one(&*store, &queue, LONG_LEASE).await).await;
        }
    }
    enqueue_some(&*store, &queue, 5).await;
    claim(&*store, &queue, 2, SHORT_LEASE).await;
    claim(&*store, &queue, 3, LONG_LEASE).await;
    enqueue(&*store, Draft::of(&queue).due(Moment::In(LONG_LEASE))).await;
    let past = Moment::At(Timestamp::from_millis(0));
    enqueue_all(&*store, &[Draft::of(&queue), Draft::of(&queue).due(past)]).await;
    enqueue_one(&*store, &other).await;
    lapse(SHORT_LEASE).await;

    let mut stats = store.stats(queue).await.expect("stats");

    let age = stats.oldest_pending_age.take().expect("one is ready");
    assert!(age > Duration::from_secs(1_000_000_000), "due since 1970: {age:?}");
    let expected = QueueStats {
        ready: 2,
        delayed: 1,
        in_flight: 5,
        lapsed: 2,
        dead: 3,
        succeeded: 1,
        cancelled: 3,
        oldest_pending_age: None,
    };
    assert_eq!(stats, expected);
}

pub(crate) async fn what_waits_for_later_has_no_age<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue(&*store, Draft::of(&queue).due(Moment::In(LONG_LEASE))).await;
    assert_eq!(store.stats(queue).await.expect("stats").oldest_pending_age, None);
}

pub(crate) async fn counts_equal_the_truth_after_a_churn<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let queue = some_queue();
    enqueue_some(&*stores[0], &queue, 60).await;
    let workers = (0..6_u64).map(|seed| {
        let (store, queue) = (stores[usize::from(seed % 2 == 1)].clone(), queue.clone());
        tokio::spawn(async move {
            let mut random = Random::seeded(seed);
            for _ in 0..8 {
                for claimed in claim(&*store, &queue, 3, LONG_LEASE).await {
                    match random.below(7) {
                        0 => drop(cancel(&*store, &claimed.task.id).await),
                        1 => {}
                        n => drop(end(&*store, &claimed, CALLS[n - 2]).await),
                    }
                }
                redrive_all(&*store, &queue).await;
                store.stats(queue.clone()).await.expect("stats");
            }
        })
    });
    join_all(workers).await.into_iter().for_each(|worker| worker.expect("no call failed"));

    let stats = stores[1].stats(queue.clone()).await.expect("stats");

    let tasks = list_all(&*stores[0], &queue).await;
    assert_eq!(tasks.len(), 60);
    let count = |status| {
        u64::try_from(tasks.iter().filter(|task| task.status == status).count()).expect("few")
    };
    assert_eq!(stats.ready + stats.delayed, count(TaskStatus::Pending));
    assert_eq!(stats.in_flight, count(TaskStatus::InFlight));
    assert_eq!(stats.dead, count(TaskStatus::Dead));
    assert_eq!(stats.succeeded, count(TaskStatus::Succeeded));
    assert_eq!(stats.cancelled, count(TaskStatus::Cancelled));
}
