//! What paused time makes exact: hints at the very due moment, and handles that close alone. What
//! the contract says of hints on every storage is in the compliance kit.

#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

use bytes::Bytes;
use futures::StreamExt as _;
use rdq_memory::MemoryStorage;
use rdq_spi::{Moment, NewTask, Overrides, QueueName, Storage, StorageError, TaskId};
use std::time::Duration;

fn task(id: &str, queue: &QueueName, due_in: Duration) -> NewTask {
    NewTask {
        id: TaskId::stored(id),
        queue: queue.clone(),
        handler_ref: queue.clone(),
        priority: 0,
        due: Moment::In(due_in),
        expires: None,
        created_at: None,
        envelope: Bytes::new(),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn every_due_moment_is_told_when_it_comes() {
    let storage = MemoryStorage::new();
    let queue = QueueName::stored("q");
    let dues = [5_u64, 9, 30].map(Duration::from_secs);
    let tasks = dues.map(|due| task(&format!("{due:?}"), &queue, due));
    storage.enqueue(tasks.into()).await.unwrap();
    let mut hints = storage.wait_due(vec![queue.clone()]).await.unwrap();

    #[expect(clippy::disallowed_methods, reason = "the test measures paused time")]
    let start = tokio::time::Instant::now();
    for due in dues {
        let hint = hints.next().await.unwrap();
        assert_eq!((hint.due_in, start.elapsed()), (Duration::ZERO, due));
    }
    let nothing_more = tokio::time::timeout(Duration::from_secs(3600), hints.next()).await;
    assert!(nothing_more.is_err(), "{nothing_more:?}");
}

#[tokio::test(start_paused = true)]
async fn a_look_by_somebody_else_takes_no_hint_away() {
    let storage = MemoryStorage::new();
    let queue = QueueName::stored("q");
    storage.enqueue(vec![task("a", &queue, Duration::from_secs(5))]).await.unwrap();
    let mut hints = storage.wait_due(vec![queue.clone()]).await.unwrap();

    tokio::time::advance(Duration::from_secs(6)).await;
    assert_eq!(storage.stats(queue.clone()).await.unwrap().ready, 1);

    assert_eq!(hints.next().await.unwrap().due_in, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn closing_a_handle_ends_its_hints_and_leaves_the_others_open() {
    let storage = MemoryStorage::new();
    let other = storage.clone();
    let queue = QueueName::stored("q");
    let mut hints = storage.wait_due(vec![queue.clone()]).await.unwrap();

    storage.close().await;

    assert_eq!(hints.next().await, None);
    assert!(matches!(storage.ping().await, Err(StorageError::Closed)));
    other.enqueue(vec![task("a", &queue, Duration::ZERO)]).await.unwrap();
}
