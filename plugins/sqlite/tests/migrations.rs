//! Files of every released schema open, with what they hold; others are refused untouched.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use rdq_spi::{
    CompareAndSet, HeldClaim, Ledger as _, MutationKey, MutationKind, MutationScope,
    MutationStatus, NewMutation, Operation, OperationName, RecordKey, RecordName, RecordSpace,
    Records as _, Storage as _, SubjectName, TaskId, Transactions as _, WorkerId,
};
use rdq_sqlite::{OpenError, SqliteOptions, SqliteStorage};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

async fn open(path: &Path) -> Result<SqliteStorage, OpenError> {
    SqliteStorage::open(path, SqliteOptions::default()).await
}

fn new_path() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    (dir, path)
}

/// The schema that an opened file has, as SQLite tells it.
fn schema(path: &Path) -> Vec<(String, Option<String>)> {
    let db = Connection::open(path).unwrap();
    let mut sql = db.prepare("SELECT name, sql FROM sqlite_schema ORDER BY name").unwrap();
    let rows = sql.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<Result<_, _>>().unwrap()
}

#[tokio::test]
async fn a_file_is_made_once_and_opens_again() {
    let (_dir, path) = new_path();
    open(&path).await.unwrap().close().await;
    let first = schema(&path);
    open(&path).await.unwrap().close().await;
    assert_eq!(schema(&path), first);
}

#[tokio::test]
async fn a_file_of_the_first_schema_is_upgraded_with_what_it_holds() {
    let (_dir, path) = new_path();
    let db = Connection::open(&path).unwrap();
    db.execute_batch(include_str!("../migrations/0001_tasks.sql")).unwrap();
    // A queue, and a task that a worker holds.
    db.execute_batch(
        "PRAGMA application_id = 0x72647100; PRAGMA user_version = 1;
        UPDATE state SET seq = 7, generation = 5;
        INSERT INTO queues (queue, name, in_flight) VALUES (1, 'q', 1);
        INSERT INTO tasks (task, id, queue, lane, at, status, generation, lease_expires_at,
            claimed_at, claimed_by, created_at, priority, handler_ref, envelope)
        VALUES ((1 << 43) + 7, 'held', 1, 2147483650, 253402300799999, 1, 5, 253402300799999,
            0, 'worker', 0, 0, 'h', x'01');",
    )
    .unwrap();
    drop(db);

    let migrated = SqliteStorage::migrate(&path).await.unwrap();
    assert_eq!((migrated.from, migrated.to), (Some(1), 3));
    let storage = open(&path).await.unwrap();

    let id = TaskId::new("held").unwrap();
    assert_eq!(storage.get(id.clone()).await.unwrap().claimed_by, Some(worker("worker")));
    let held =
        |by, generation| HeldClaim { task_id: id.clone(), worker_id: worker(by), generation };
    let claims = vec![held("worker", 5), held("worker", 4), held("other", 5)];
    let tokens = storage.claims_of(claims).await.unwrap();
    assert!(tokens[0].is_some() && tokens[1..] == [None, None], "{tokens:?}");
    let key = RecordKey { space: RecordSpace::Caller, name: RecordName::new("k").unwrap() };
    let set = CompareAndSet { key, value: Some("v".into()), expected_revision: 0 };
    assert_eq!(storage.compare_and_set(vec![set]).await.unwrap()[0].as_ref().unwrap(), &1);
}

#[tokio::test]
async fn a_file_of_the_second_schema_gets_the_ledger() {
    let (_dir, path) = new_path();
    let db = Connection::open(&path).unwrap();
    db.execute_batch(include_str!("../migrations/0001_tasks.sql")).unwrap();
    db.execute_batch(include_str!("../migrations/0002_coordination.sql")).unwrap();
    db.execute_batch(
        "PRAGMA application_id = 0x72647100; PRAGMA user_version = 2;
        INSERT INTO records (space, key, revision, made, updated_at, value)
        VALUES ('caller', CAST('k' AS BLOB), 4, 1, 0, x'01');",
    )
    .unwrap();
    drop(db);

    let storage = open(&path).await.unwrap();

    let key = RecordKey { space: RecordSpace::Caller, name: RecordName::new("k").unwrap() };
    assert_eq!(storage.get_record(key).await.unwrap().unwrap().revision, 4);
    let scope = MutationScope {
        subject: SubjectName::new("s").unwrap(),
        operation: OperationName::new("o").unwrap(),
        key: MutationKey::new("k").unwrap(),
    };
    let mutation = NewMutation {
        scope: scope.clone(),
        kind: MutationKind::new("kind").unwrap(),
        eligibility_claim: "claim".into(),
        fingerprint: [1; 32],
        status: MutationStatus::Accepted,
        response: "done".into(),
    };
    storage.commit(vec![Operation::Observe(mutation.clone())]).await.unwrap();
    assert_eq!(storage.mutation(scope).await.unwrap().unwrap().first, mutation);
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_at_once_open_a_new_file() {
    let (_dir, path) = new_path();
    let opens: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move { open(&path).await })
        })
        .collect();
    for opened in opens {
        opened.await.unwrap().unwrap().ping().await.unwrap();
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let (_dir, path) = new_path();
    open(&path).await.unwrap().close().await;
    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA user_version = 99;").unwrap();
    let before = schema(&path);

    let error = open(&path).await.unwrap_err();

    assert!(matches!(error, OpenError::NewerSchema { found: 99, .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the database has schema version 99, and this rdq knows up to 3: a newer rdq has used it; \
         use one that is as new"
    );
    assert_eq!(schema(&path), before);
}

#[tokio::test]
async fn another_applications_file_is_refused_and_left_alone() {
    let (_dir, path) = new_path();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (x);").unwrap();
    let before = std::fs::read(&path).unwrap();

    let error = open(&path).await.unwrap_err();

    assert!(matches!(error, OpenError::Foreign), "{error:?}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_path_without_a_directory_says_so() {
    let (dir, _) = new_path();
    let error = open(&dir.path().join("missing/rdq.db")).await.unwrap_err();
    assert!(matches!(error, OpenError::Path { .. }), "{error:?}");
    let error = open(dir.path()).await.unwrap_err();
    assert!(matches!(error, OpenError::Path { .. }), "{error:?}");
}
