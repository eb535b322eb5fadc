//! What happens when the file may not grow: SQLite answers the same as on a full disk.

use crate::{SqliteOptions, SqliteStorage, connection, migrations};
use bytes::Bytes;
use futures::future::join_all;
use rdq_spi::{
    Moment, NewTask, Overrides, PurgeParams, QueueName, Selection, Storage as _, StorageError,
    TaskId,
};

const PAGES_MAX: u32 = 300;

fn new_store() -> (tempfile::TempDir, SqliteStorage) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rdq.db");
    let db = connection::open_writer(&path).unwrap();
    migrations::migrate(&db).unwrap();
    db.execute_batch(&format!("PRAGMA max_page_count = {PAGES_MAX};")).unwrap();
    let storage = SqliteStorage::start(&path, db, &SqliteOptions::default()).unwrap();
    (dir, storage)
}

pub(crate) fn new_task(n: usize, bytes: usize) -> NewTask {
    let queue = QueueName::new("q").unwrap();
    NewTask {
        id: TaskId::new(n.to_string()).unwrap(),
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
async fn a_call_that_does_not_fit_is_refused_alone_and_changes_nothing() {
    let (_dir, storage) = new_store();
    let large = PAGES_MAX as usize * 4_096;
    // All at once, so that they share transactions.
    let calls =
        (0..50).map(|n| storage.enqueue(vec![new_task(n, if n == 25 { large } else { 9 })]));
    let answers = join_all(calls).await;
    for (n, answer) in answers.into_iter().enumerate() {
        match (n, answer) {
            (25, Err(StorageError::Full { .. })) => {}
            (25, other) => panic!("{other:?}"),
            (_, answer) => assert!(answer.unwrap()[0].as_ref().unwrap().created),
        }
    }
    let refused = storage.get(TaskId::new("25").unwrap()).await;
    assert!(matches!(refused, Err(StorageError::NotFound { .. })), "{refused:?}");
}

#[tokio::test]
async fn writing_goes_on_once_there_is_space() {
    let (_dir, storage) = new_store();
    let mut admitted = 0;
    let full = loop {
        match storage.enqueue(vec![new_task(admitted, 20_000)]).await {
            Ok(_) => admitted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StorageError::Full { .. }), "{full:?}");
    let queue = QueueName::new("q").unwrap();
    assert_eq!(storage.stats(queue.clone()).await.unwrap().ready, admitted as u64);

    // Ending and removing tasks needs hardly any space.
    storage.cancel(vec![TaskId::new("0").unwrap()]).await.unwrap()[0].as_ref().unwrap();
    let selection = Selection::All;
    let (position, limit, dry_run) = (None, 100, false);
    storage
        .purge(PurgeParams { queue: queue.clone(), selection, dry_run, position, limit })
        .await
        .unwrap();
    let sweep = rdq_spi::SweepParams {
        queue,
        expire: false,
        succeeded_older_than: None,
        cancelled_older_than: Some(rdq_spi::Age::LongerThan(std::time::Duration::ZERO)),
        dead: None,
        limit: 100,
    };
    assert_eq!(storage.sweep(sweep).await.unwrap().removed, 1);
    storage.enqueue(vec![new_task(admitted, 10_000)]).await.unwrap()[0].as_ref().unwrap();
}
