//! An application's transaction of `sqlx`, joined: one connection, lent to the storage for a moment.
#![doc = include_str!("../README.md")]

use rdq_sqlite::{Joined, OpenError};
use rusqlite::Connection;
use sqlx::SqliteConnection;

/// Why a transaction cannot be joined. Nothing of it was changed.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The connection is not inside a transaction, or the file is not one that this rdq can use.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The connection is broken.
    #[error("the connection cannot be used")]
    Sqlx(#[from] sqlx::Error),
}

/// Takes part in the connection's transaction for as long as `work` runs. What `work` is refused
/// leaves the transaction as it was; whether anything happens is the application's to decide, by its
/// commit. `work` runs on the calling thread and waits for nothing but the file.
pub async fn join<T>(
    transaction: &mut SqliteConnection,
    work: impl FnOnce(&mut Joined<'_>) -> T,
) -> Result<T, JoinError> {
    let mut handle = transaction.lock_handle().await?;
    let db = lent(handle.as_raw_handle().as_ptr())?;
    // What is joined ends before the connection is given back: it borrows from `db`, and `db` is
    // dropped before `handle`, in the reverse order of their making.
    let mut joined = rdq_sqlite::join_open(&db)?;
    Ok(work(&mut joined))
}

/// The connection behind this handle, which stays its owner's. It must not outlive the lock that the
/// handle was taken under.
#[expect(unsafe_code, reason = "one library's connection is lent to another's")]
fn lent(handle: *mut rusqlite::ffi::sqlite3) -> Result<Connection, OpenError> {
    // SAFETY: the handle is open and nobody else uses it while the lock is held, which its caller
    // does for longer than the connection lives. Both crates link the same SQLite: they share its
    // type, or this would not compile. Dropped, a lent connection closes nothing.
    Ok(unsafe { Connection::from_handle(handle) }?)
}
