//! Reads beside the writer: a few connections, each used by one short transaction at a time on a
//! thread that may block. They see what is committed, and no read holds a snapshot for long.

use crate::{
    clock::Clock,
    connection,
    errors::{Failure, Sql},
    statements::text,
};
use rdq_spi::{Result, StorageError, Timestamp};
use rusqlite::Connection;
use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Semaphore;

/// The connections.
#[derive(Debug)]
pub(crate) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    free: Arc<Semaphore>,
}

impl Readers {
    /// A pool of these, and of those that take the place of broken ones.
    pub(crate) fn new(path: PathBuf, connections: Vec<Connection>) -> Self {
        let free = Arc::new(Semaphore::new(connections.len()));
        Self { path, idle: Mutex::new(connections), free }
    }

    /// Runs `read` in one read transaction. Once begun it runs to its end, even if this future is
    /// dropped. A connection that fails is not used again.
    pub(crate) async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        operation: &'static str,
        read: impl FnOnce(&Snapshot<'_>) -> Sql<T> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let permit = permit.map_err(|_| StorageError::Closed)?;
        let readers = Arc::clone(self);
        let answer = tokio::task::spawn_blocking(move || {
            let answer = readers.connection().and_then(|db| {
                let answer = Snapshot::take(&db, read).map_err(Failure::before_commit);
                if !answer.as_ref().is_err_and(Failure::is_of_connection) {
                    readers.give_back(db);
                }
                answer
            });
            drop(permit);
            answer.map_err(|failure| failure.answer(operation))
        });
        answer.await.unwrap_or_else(|error| {
            let source = io::Error::other(error).into();
            Err(StorageError::Internal { operation, source })
        })
    }

    /// Closes the idle connections, and the others as they are given back.
    pub(crate) fn close(&self) {
        self.free.close();
        self.lock().clear();
    }

    /// One that is idle, or a new one: who holds a permit has a right to one.
    fn connection(&self) -> Result<Connection, Failure> {
        let idle = self.lock().pop();
        idle.map_or_else(|| connection::open_reader(&self.path).map_err(Failure::of_reopening), Ok)
    }

    fn give_back(&self, db: Connection) {
        let mut idle = self.lock();
        if !self.free.is_closed() {
            idle.push(db);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One read transaction, and the storage's now in it.
pub(crate) struct Snapshot<'c> {
    pub(crate) db: &'c Connection,
    pub(crate) store_id: [u8; 8],
    pub(crate) now: Timestamp,
}

impl<'c> Snapshot<'c> {
    fn take<T>(db: &'c Connection, read: impl FnOnce(&Self) -> Sql<T>) -> Sql<T> {
        // It ends with this call.
        let _transaction = db.unchecked_transaction()?;
        let (store_id, clock) = db.prepare_cached(text!(state))?.query_row([], |row| {
            Ok((row.get(0)?, Clock { now: row.get(1)?, host_now: row.get(2)? }))
        })?;
        read(&Self { db, store_id, now: clock.advanced().timestamp() })
    }
}
