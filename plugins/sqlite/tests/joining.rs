//! Operations in an application's own transaction: with its rows, or not at all.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use futures::StreamExt as _;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, Moment, NewEvent, NewTask, Operation,
    Overrides, QueueName, ReadFrom, ReadParams, RecordKey, RecordName, RecordSpace, SaveOffset,
    Signals as _, Storage as _, StorageError, StreamName, Streams as _, TaskId, Topic, Wake,
};
use rdq_sqlite::{OpenError, SqliteOptions, SqliteStorage, join, join_open};
use rusqlite::{Connection, TransactionBehavior};
use std::{collections::HashSet, path::PathBuf, time::Duration};

async fn new_store() -> (tempfile::TempDir, PathBuf, SqliteStorage) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    let storage = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
    (dir, path, storage)
}

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn publish(text: &'static str) -> Operation {
    Operation::Publish(NewEvent { stream: stream(), key: None, payload: text.into() })
}

fn enqueue(id: &str) -> Operation {
    Operation::Enqueue(NewTask {
        id: TaskId::new(id).unwrap(),
        queue: queue(),
        handler_ref: queue(),
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: "sent".into(),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: bytes::Bytes::new(),
        attempts: Vec::new(),
    })
}

fn set(expected_revision: i64) -> Operation {
    let key = RecordKey { space: RecordSpace::Caller, name: RecordName::new("k").unwrap() };
    Operation::CompareAndSet(CompareAndSet { key, value: Some("v".into()), expected_revision })
}

fn read() -> ReadParams {
    let from = ReadFrom::Offset(0);
    ReadParams { stream: stream(), from, limit: 10, bytes_max: 1 << 20 }
}

/// An application that has rows of its own in the same file.
fn application(path: &PathBuf) -> Connection {
    let db = Connection::open(path).unwrap();
    db.busy_timeout(Duration::from_secs(60)).unwrap();
    db.execute_batch("CREATE TABLE IF NOT EXISTS orders (number INTEGER) STRICT;").unwrap();
    db
}

#[tokio::test]
async fn they_happen_with_the_applications_rows() {
    let (_dir, path, storage) = new_store().await;
    let mut db = application(&path);
    storage
        .publish(vec![NewEvent { stream: stream(), key: None, payload: "before".into() }])
        .await
        .unwrap();
    let channel = ChannelName::new("c").unwrap();
    let topics = [Topic::Channel(channel.clone()), Topic::Stream(stream())];
    let mut wakes = storage.listen(topics.to_vec()).await.unwrap();
    let mut hints = storage.wait_due(vec![queue()]).await.unwrap();
    let consumer = ConsumerName::new("reader").unwrap();

    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    let mut rdq = join(&transaction).unwrap();
    let first = rdq.apply(&[publish("one"), enqueue("task"), set(0)]).unwrap();
    let save = SaveOffset { stream: stream(), consumer: consumer.clone(), offset: 2 };
    rdq.apply(&[publish("two"), Operation::Notify(channel), Operation::SaveOffset(save)]).unwrap();
    assert_eq!((first[0], first[2]), (Applied::Published(2), Applied::Recorded(1)));
    assert_eq!(rdq.read(&read()).unwrap().len(), 3, "it sees its own");
    assert_eq!(rdq.offset(&stream(), &consumer).unwrap(), 2);
    assert_eq!(rdq.get(&TaskId::new("task").unwrap()).unwrap().envelope, "sent");
    assert_eq!(storage.read(read()).await.unwrap().len(), 1, "and nobody else does");
    drop(rdq);
    transaction.commit().unwrap();

    assert_eq!(storage.read(read()).await.unwrap().len(), 3);
    assert_eq!(storage.stats(queue()).await.unwrap().ready, 1);
    // A wake that takes a minute is lost, on however busy a machine.
    let lost = Duration::from_secs(60);
    let mut missing = HashSet::from(topics);
    while !missing.is_empty() {
        match tokio::time::timeout(lost, wakes.next()).await.unwrap() {
            Some(Wake::News(topic)) => _ = missing.remove(&topic),
            other => panic!("{other:?}"),
        }
    }
    let hint = tokio::time::timeout(lost, hints.next()).await.unwrap().unwrap();
    assert_eq!(hint.queue, queue());
    let next = vec![NewEvent { stream: stream(), key: None, payload: "after".into() }];
    assert_eq!(storage.publish(next).await.unwrap()[0].as_ref().unwrap(), &4);
}

#[tokio::test]
async fn with_a_rollback_or_a_refusal_nothing_happens() {
    let (_dir, path, storage) = new_store().await;
    let mut db = application(&path);

    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    join(&transaction).unwrap().apply(&[publish("never"), enqueue("never")]).unwrap();
    transaction.rollback().unwrap();
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let rejected = join(&transaction).unwrap().apply(&[publish("never"), set(7)]).unwrap_err();
    assert_eq!(rejected.index, Some(1));
    assert!(matches!(rejected.error, StorageError::CasConflict { .. }), "{rejected:?}");
    // The application goes on all the same.
    transaction.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    transaction.commit().unwrap();

    assert_eq!(storage.read(read()).await.unwrap(), []);
    assert_eq!(storage.queue_names(None, 10).await.unwrap(), []);
    let orders: i64 = db.query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 1);
}

#[tokio::test]
async fn a_file_that_no_store_prepared_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = Connection::open(dir.path().join("other.db")).unwrap();
    let transaction = db.transaction().unwrap();
    let refused = join(&transaction).unwrap_err();
    assert!(matches!(refused, OpenError::OlderSchema { found: 0, .. }), "{refused:?}");
}

#[tokio::test]
async fn a_connection_without_a_transaction_is_refused() {
    let (_dir, path, _storage) = new_store().await;
    let refused = join_open(&application(&path)).unwrap_err();
    assert!(matches!(refused, OpenError::NoTransaction), "{refused:?}");
}
