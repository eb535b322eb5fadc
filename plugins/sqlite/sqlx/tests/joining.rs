//! Operations in a transaction of sqlx: with its rows, or not at all.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use rdq_spi::{
    Applied, CompareAndSet, Moment, NewEvent, NewTask, Operation, Overrides, QueueName, ReadFrom,
    ReadParams, RecordKey, RecordName, RecordSpace, Storage as _, StorageError, StreamName,
    Streams as _, TaskId,
};
use rdq_sqlite::{OpenError, SqliteOptions, SqliteStorage};
use rdq_sqlite_sqlx::{JoinError, join};
use sqlx::{Connection as _, SqliteConnection, query, query_scalar, sqlite::SqliteConnectOptions};

/// A store, and an application that has rows of its own in the same file.
async fn store_and_application() -> (tempfile::TempDir, SqliteStorage, SqliteConnection) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    let storage = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
    let options = SqliteConnectOptions::new().filename(&path);
    let mut db = SqliteConnection::connect_with(&options).await.unwrap();
    query("CREATE TABLE orders (number INTEGER) STRICT").execute(&mut db).await.unwrap();
    (dir, storage, db)
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

fn stream() -> StreamName {
    StreamName::new("orders").unwrap()
}

fn publish() -> Operation {
    Operation::Publish(NewEvent { stream: stream(), key: None, payload: "sent".into() })
}

fn enqueue() -> Operation {
    Operation::Enqueue(NewTask {
        id: TaskId::new("task").unwrap(),
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

/// Refused: there is no such record.
fn change_nothing() -> Operation {
    let key = RecordKey { space: RecordSpace::Caller, name: RecordName::new("k").unwrap() };
    Operation::CompareAndSet(CompareAndSet { key, value: None, expected_revision: 7 })
}

fn read() -> ReadParams {
    let from = ReadFrom::Offset(0);
    ReadParams { stream: stream(), from, limit: 10, bytes_max: 1 << 20 }
}

async fn orders(db: &mut SqliteConnection) -> i64 {
    query_scalar("SELECT count(*) FROM orders").fetch_one(db).await.unwrap()
}

#[tokio::test]
async fn they_happen_with_the_applications_rows() {
    let (_dir, storage, mut db) = store_and_application().await;

    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    query("INSERT INTO orders VALUES (1)").execute(&mut *transaction).await.unwrap();
    let applied = join(&mut transaction, |rdq| rdq.apply(&[publish(), enqueue()])).await.unwrap();
    assert_eq!(applied.unwrap()[0], Applied::Published(1));
    let task = join(&mut transaction, |rdq| rdq.get(&TaskId::new("task").unwrap())).await.unwrap();
    assert_eq!(task.unwrap().envelope, "sent", "it sees its own");
    query("INSERT INTO orders VALUES (2)").execute(&mut *transaction).await.unwrap();
    assert_eq!(storage.read(read()).await.unwrap(), [], "and nobody else does");
    transaction.commit().await.unwrap();

    assert_eq!(storage.read(read()).await.unwrap().len(), 1);
    assert_eq!(storage.stats(queue()).await.unwrap().ready, 1);
    assert_eq!(orders(&mut db).await, 2);
}

#[tokio::test]
async fn with_a_rollback_or_a_refusal_nothing_happens() {
    let (_dir, storage, mut db) = store_and_application().await;

    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    join(&mut transaction, |rdq| rdq.apply(&[publish(), enqueue()])).await.unwrap().unwrap();
    drop(transaction);
    let mut transaction = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let refused = join(&mut transaction, |rdq| rdq.apply(&[publish(), change_nothing()])).await;
    let rejected = refused.unwrap().unwrap_err();
    assert_eq!(rejected.index, Some(1));
    assert!(matches!(rejected.error, StorageError::CasConflict { .. }), "{rejected:?}");
    // The application goes on all the same.
    query("INSERT INTO orders VALUES (1)").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();

    assert_eq!(storage.read(read()).await.unwrap(), []);
    assert_eq!(storage.queue_names(None, 10).await.unwrap(), []);
    assert_eq!(orders(&mut db).await, 1);
}

#[tokio::test]
async fn what_is_no_transaction_of_a_store_is_refused() {
    let (_dir, _storage, mut db) = store_and_application().await;
    let refused = join(&mut db, |_| ()).await.unwrap_err();
    assert!(matches!(refused, JoinError::Store(OpenError::NoTransaction)), "{refused:?}");

    let mut other = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    let refused = join(&mut transaction, |_| ()).await.unwrap_err();
    assert!(
        matches!(refused, JoinError::Store(OpenError::OlderSchema { found: 0, .. })),
        "{refused:?}"
    );
}
