//! What only a file shows of coordination: what of it is written, what is kept of it, and what who
//! stood still is told.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use bytes::Bytes;
use futures::StreamExt as _;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, NewEvent, Operation, RecordKey, RecordName, RecordSpace,
    Records as _, Signals as _, StorageError, StreamName, Topic, Transactions as _, Wake,
};
use rdq_sqlite::{SqliteOptions, SqliteStorage};
use rusqlite::Connection;
use std::{path::PathBuf, time::Duration};

/// A store, and a connection of another application to its file.
async fn new_store() -> (tempfile::TempDir, PathBuf, SqliteStorage, Connection) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    let storage = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
    let other = Connection::open(&path).unwrap();
    (dir, path, storage, other)
}

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn publish(text: &'static str) -> Operation {
    let stream = StreamName::new("s").unwrap();
    Operation::Publish(NewEvent { stream, key: None, payload: text.into() })
}

fn number(db: &Connection, sql: &str) -> i64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn an_open_transaction_writes_nothing() {
    let (_dir, _path, storage, other) = new_store().await;
    let version = || number(&other, "PRAGMA data_version");
    let mut transaction = storage.begin().await.unwrap();
    let before = version();

    let applied = transaction.apply(vec![publish("one")]).await.unwrap();
    transaction
        .offset(StreamName::new("s").unwrap(), rdq_spi::ConsumerName::stored("c"))
        .await
        .unwrap();

    assert_eq!(applied, [Applied::Published(1)]);
    assert_eq!(version(), before, "nothing went to the disk");
    transaction.commit().await.unwrap();
    assert_ne!(version(), before);
}

#[tokio::test]
async fn old_notifications_go_and_who_stood_still_is_told() {
    let (_dir, _path, storage, other) = new_store().await;
    let topic = Topic::Channel(channel("listened"));
    storage.notify((0..40).map(|number| channel(&number.to_string())).collect()).await.unwrap();
    let kept = || number(&other, "SELECT count(*) FROM notifications");
    assert_eq!(kept(), 40);
    other.execute_batch("UPDATE notifications SET notified_at = notified_at - 61000;").unwrap();
    // One that stands still: what it does not look at in time is forgotten.
    let mut wakes = storage.listen(vec![topic.clone()]).await.unwrap();
    other
        .execute_batch(
            "BEGIN IMMEDIATE;
            UPDATE state SET seq = seq + 1;
            INSERT INTO notifications SELECT seq, 'listened', now - 61000 FROM state;
            UPDATE state SET seq = seq + 1;
            UPDATE state SET forgotten = seq - 1;
            DELETE FROM notifications WHERE channel = 'listened';
            COMMIT;",
        )
        .unwrap();
    // A wake that takes a minute is lost, on however busy a machine.
    let wake = tokio::time::timeout(Duration::from_secs(60), wakes.next()).await.unwrap();
    assert_eq!(wake, Some(Wake::Reconnected));

    let forgotten = number(&other, "SELECT forgotten FROM state");
    for _ in 0..40 {
        storage.notify(vec![channel("again")]).await.unwrap();
    }
    assert_eq!(kept(), 1, "the old ones are gone");
    assert!(number(&other, "SELECT forgotten FROM state") >= forgotten, "it never shrinks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_notification_wakes_its_own_channel_alone() {
    let (_dir, path, storage, _other) = new_store().await;
    let elsewhere = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
    let topics = ["a", "b"].map(|name| Topic::Channel(channel(name)));
    let mut wakes = storage.listen(topics.to_vec()).await.unwrap();

    for topic in [&topics[1], &topics[1], &topics[0]] {
        let Topic::Channel(name) = topic else { unreachable!() };
        elsewhere.notify(vec![name.clone(), channel("c")]).await.unwrap();
        let wake = tokio::time::timeout(Duration::from_secs(60), wakes.next()).await.unwrap();
        assert_eq!(wake, Some(Wake::News(topic.clone())));
    }
}

#[tokio::test]
async fn a_commit_that_meets_a_lock_for_too_long_is_contention_and_changes_nothing() {
    let (_dir, _path, storage, other) = new_store().await;
    other.execute_batch("BEGIN IMMEDIATE;").unwrap();
    let key = RecordKey { space: RecordSpace::Caller, name: RecordName::new("k").unwrap() };
    let value = Some(Bytes::from_static(b"v"));
    let set = CompareAndSet { key: key.clone(), value, expected_revision: 0 };
    let operations = vec![publish("one"), Operation::CompareAndSet(set)];

    let rejected = storage.commit(operations).await.unwrap_err();

    assert!(matches!(rejected.error, StorageError::Contention { .. }), "{rejected:?}");
    other.execute_batch("COMMIT;").unwrap();
    assert_eq!(storage.get_record(key).await.unwrap(), None);
    assert_eq!(storage.commit(vec![publish("two")]).await.unwrap(), [Applied::Published(1)]);
}
