//! What happens when a connection fails and the file is whole: it is opened again, without a
//! restart and without losing those who wait.

use crate::{SqliteOptions, SqliteStorage, admission, connection, disk_full::new_task, migrations};
use futures::StreamExt as _;
use rdq_spi::{QueueName, Storage as _, StorageError, SweepParams};
use rusqlite::ffi;
use std::{path::PathBuf, time::Duration};

fn new_store(break_it: &str) -> (tempfile::TempDir, PathBuf, SqliteStorage) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    let db = connection::open_writer(&path).unwrap();
    migrations::migrate(&db).unwrap();
    db.execute_batch(break_it).unwrap();
    let storage = SqliteStorage::start(&path, db, &SqliteOptions::default()).unwrap();
    (dir, path, storage)
}

fn io_error<T>() -> rusqlite::Result<T> {
    Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None))
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

async fn enqueue(storage: &SqliteStorage, n: usize) -> Result<bool, StorageError> {
    let answers = storage.enqueue(vec![new_task(n, 9)]).await?;
    Ok(answers[0].as_ref().unwrap().created)
}

/// Waits for what should take a moment. A minute is against hanging alone: a busy disk may take
/// seconds to sync, and breaks nothing by that.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap()
}

#[tokio::test]
async fn a_writer_that_cannot_write_any_more_is_replaced() {
    // Nothing but a new connection makes it write.
    let (_dir, _path, storage) = new_store("PRAGMA query_only = ON;");
    let mut hints = storage.wait_due(vec![queue()]).await.unwrap();
    let refused = enqueue(&storage, 0).await;
    assert!(matches!(refused, Err(StorageError::Unavailable { .. })), "{refused:?}");
    assert!(soon(enqueue(&storage, 0)).await.unwrap());
    assert_eq!(soon(hints.next()).await.unwrap().queue, queue());
    storage.close().await;
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_again_is_unavailable_until_it_can() {
    let (_dir, path, storage) = new_store("");
    assert!(enqueue(&storage, 0).await.unwrap());
    let gone = path.with_extension("gone");
    std::fs::rename(&path, &gone).unwrap();
    let broken = storage.writer.call("test", 1, |_| io_error::<()>()).await;
    assert!(matches!(broken, Err(StorageError::Unavailable { .. })), "{broken:?}");
    let refused = soon(enqueue(&storage, 1)).await;
    assert!(matches!(refused, Err(StorageError::Unavailable { .. })), "{refused:?}");
    assert!(!path.exists(), "a new file in its place would hide all tasks");
    std::fs::rename(&gone, &path).unwrap();
    soon(async {
        while enqueue(&storage, 1).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert!(!enqueue(&storage, 0).await.unwrap(), "the first task is still there");
}

#[tokio::test]
async fn one_who_closes_waits_for_no_file() {
    let (_dir, path, storage) = new_store("");
    std::fs::remove_file(&path).unwrap();
    storage.writer.call("test", 1, |_| io_error::<()>()).await.unwrap_err();
    soon(storage.close()).await;
}

#[tokio::test]
async fn a_reader_that_failed_is_not_used_again() {
    const MARK: i64 = -7_777;
    let (_dir, _path, storage) = new_store("");
    for _ in 0..=SqliteOptions::default().readers {
        let failed = storage.readers.call("test", |snapshot| {
            snapshot.db.execute_batch(&format!("PRAGMA cache_size = {MARK};"))?;
            io_error::<()>()
        });
        let failed = failed.await;
        assert!(matches!(failed, Err(StorageError::Unavailable { .. })), "{failed:?}");
        let cache_size = storage.readers.call("test", |snapshot| {
            snapshot.db.query_row("PRAGMA cache_size;", [], |row| row.get::<_, i64>(0))
        });
        assert_ne!(cache_size.await.unwrap(), MARK);
    }
}

#[tokio::test]
async fn a_sweep_takes_no_hint_from_the_calls_beside_it() {
    let (_dir, _path, storage) = new_store("");
    // An empty queue, for the sweep to forget.
    storage.writer.call("test", 1, |tx| tx.queue(&QueueName::stored("empty"))).await.unwrap();
    let mut hints = storage.wait_due(vec![queue()]).await.unwrap();
    // Until the writer has looked around once: after that, it looks where others wrote.
    tokio::time::sleep(Duration::from_millis(100)).await;
    // As a group commit would have them.
    let both = storage.writer.call("test", 1, |tx| {
        let admitted = admission::enqueue_all(tx, &[new_task(0, 9)])?;
        let params = SweepParams {
            queue: QueueName::stored("other"),
            expire: true,
            succeeded_older_than: None,
            cancelled_older_than: None,
            dead: None,
            limit: 100,
        };
        crate::sweeps::sweep(tx, &params)?;
        Ok(admitted)
    });
    assert!(both.await.unwrap().pop().unwrap().unwrap().created);
    assert_eq!(soon(hints.next()).await.unwrap().queue, queue());
    let names = storage.queue_names(None, 10).await.unwrap();
    assert_eq!(names, [queue()]);
}
