//! Files of every released schema open, with what they hold; others are refused untouched.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use rdq_spi::Storage as _;
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
        "the database has schema version 99, and this rdq knows up to 2: a newer rdq has used it; \
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
