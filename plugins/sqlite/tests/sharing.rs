//! A file among others: connections that read for long, clocks that were set back, processes that
//! write beside this one.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use bytes::Bytes;
use futures::StreamExt as _;
use rdq_spi::{Moment, NewTask, Overrides, QueueName, Storage as _, StorageError, TaskId};
use rdq_sqlite::{SqliteOptions, SqliteStorage};
use rusqlite::Connection;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

async fn open(path: &Path) -> SqliteStorage {
    SqliteStorage::open(path, SqliteOptions::default()).await.unwrap()
}

fn new_path() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    (dir, path)
}

fn new_task(id: &str, bytes: usize) -> NewTask {
    let queue = QueueName::new("q").unwrap();
    NewTask {
        id: TaskId::new(id).unwrap(),
        queue: queue.clone(),
        handler_ref: queue,
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from(vec![7; bytes]),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_reader_stops_no_write_and_the_log_is_small_after_it() {
    let (_dir, path) = new_path();
    let log_bytes = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    let storage = open(&path).await;
    storage.enqueue(vec![new_task("first", 9)]).await.unwrap();
    let reader = Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM tasks;").unwrap();

    for n in 0..80 {
        storage.enqueue(vec![new_task(&n.to_string(), 1 << 20)]).await.unwrap();
    }
    assert!(log_bytes() > 80 << 20, "the reader holds the log");

    reader.execute_batch("COMMIT;").unwrap();
    // The log is moved into the file by a thread beside the writes, which tries again every second. A
    // minute is against hanging alone: moving 80 MiB takes seconds on a busy disk.
    for n in 0.. {
        if log_bytes() < 1 << 20 {
            break;
        }
        assert!(n < 600, "the log is still {} bytes", log_bytes());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    storage.enqueue(vec![new_task("last", 9)]).await.unwrap();
}

#[tokio::test]
async fn the_clock_never_runs_backwards_over_restarts() {
    let (_dir, path) = new_path();
    let storage = open(&path).await;
    storage.enqueue(vec![new_task("before", 9)]).await.unwrap();
    storage.close().await;
    // As if the host's clock had been an hour ahead then.
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE state SET now = now + 3600000, host_now = host_now + 3600000;")
        .unwrap();
    let ahead: i64 = db.query_row("SELECT now FROM state", [], |row| row.get(0)).unwrap();
    drop(db);

    let storage = open(&path).await;
    storage.enqueue(vec![new_task("after", 9)]).await.unwrap();
    let first = storage.get(TaskId::new("after").unwrap()).await.unwrap().created_at.millis();
    assert!((ahead..ahead + 60_000).contains(&first), "{first} {ahead}");

    tokio::time::sleep(Duration::from_millis(50)).await;
    storage.enqueue(vec![new_task("later", 9)]).await.unwrap();
    let later = storage.get(TaskId::new("later").unwrap()).await.unwrap().created_at.millis();
    assert!(later > first, "it goes on, if slower");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_processs_task_wakes_a_waiter() {
    let (_dir, path) = new_path();
    let (here, elsewhere) = (open(&path).await, open(&path).await);
    let queue = QueueName::new("q").unwrap();
    let mut hints = here.wait_due(vec![queue.clone()]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;

    elsewhere.enqueue(vec![new_task("task", 9)]).await.unwrap();

    // A hint that takes a minute is lost, on however busy a machine.
    let hint = tokio::time::timeout(Duration::from_secs(60), hints.next()).await.unwrap().unwrap();
    assert_eq!((hint.queue, hint.due_in), (queue, Duration::ZERO));
}

#[tokio::test]
async fn a_lock_held_for_too_long_is_contention_and_then_writing_goes_on() {
    let (_dir, path) = new_path();
    let storage = open(&path).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE;").unwrap();
    let error = storage.enqueue(vec![new_task("task", 9)]).await.unwrap_err();
    assert!(matches!(error, StorageError::Contention { operation: "enqueue" }), "{error:?}");
    other.execute_batch("COMMIT;").unwrap();
    assert!(storage.enqueue(vec![new_task("task", 9)]).await.unwrap()[0].as_ref().unwrap().created);
}

#[tokio::test]
async fn a_dropped_call_is_done_all_the_same_and_a_closed_handle_refuses() {
    let (_dir, path) = new_path();
    let storage = open(&path).await;
    let call = storage.enqueue(vec![new_task("task", 9)]);
    // Polled once, so that it was sent, and then forgotten.
    assert!(futures::poll!(call).is_pending());
    storage.ping().await.unwrap();
    storage.get(TaskId::new("task").unwrap()).await.unwrap();

    storage.close().await;
    storage.close().await;
    assert!(matches!(storage.ping().await, Err(StorageError::Closed)));
    let error = storage.enqueue(vec![new_task("late", 9)]).await.unwrap_err();
    assert!(matches!(error, StorageError::Closed), "{error:?}");
    let queues = vec![QueueName::new("q").unwrap()];
    assert!(matches!(storage.wait_due(queues).await, Err(StorageError::Closed)));
    assert!(!path.with_extension("db-wal").exists(), "the log is in the file");
}
