//! SQLite's errors as storage errors: decides what was full, busy, unreachable, unknown or a bug.
//! It logs nothing and answers nobody.

use crate::config::OpenError;
use rdq_spi::StorageError;
use rusqlite::ErrorCode;
use std::{error::Error, sync::Arc};

/// The result of a step inside a transaction. An `Err` undoes the whole transaction.
pub(crate) type Sql<T> = Result<T, rusqlite::Error>;

/// Why a transaction failed: shared by every call that was in it.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    class: Class,
    is_of_connection: bool,
    cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Full,
    Contention,
    Unavailable,
    OutcomeUnknown,
    Internal,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
struct Cause(Arc<dyn Error + Send + Sync>);

impl Failure {
    /// Of a statement before the commit: nothing was applied.
    pub(crate) fn before_commit(error: rusqlite::Error) -> Self {
        Self::new(classify(&error), error)
    }

    /// Of the commit itself. A full disk was met before the commit's record was whole, so nothing
    /// stands; after any other failure of the disk, a crash may yet bring the change back.
    pub(crate) fn of_commit(error: rusqlite::Error) -> Self {
        let class = match classify(&error) {
            Class::Unavailable => Class::OutcomeUnknown,
            class => class,
        };
        Self::new(class, error)
    }

    /// Of an attempt to open the file again.
    pub(crate) fn of_reopening(error: OpenError) -> Self {
        match error {
            OpenError::Sqlite(error) => Self::before_commit(error),
            error => Self {
                class: Class::Unavailable,
                is_of_connection: true,
                cause: Cause(Arc::new(error)),
            },
        }
    }

    fn new(class: Class, error: rusqlite::Error) -> Self {
        Self { class, is_of_connection: breaks_connection(&error), cause: Cause(Arc::new(error)) }
    }

    /// Whether the connection should not be used any more.
    pub(crate) fn is_of_connection(&self) -> bool {
        self.is_of_connection
    }

    /// Whether another call of the same batch may fare better alone: the failure may be due to
    /// what one call carried.
    pub(crate) fn may_be_one_calls_own(&self) -> bool {
        matches!(self.class, Class::Full | Class::Internal)
    }

    /// The failure as the answer to a call.
    pub(crate) fn answer(&self, operation: &'static str) -> StorageError {
        let source = Box::new(self.cause.clone());
        match self.class {
            Class::Full => StorageError::Full { source },
            Class::Contention => StorageError::Contention { operation },
            Class::Unavailable => StorageError::Unavailable { operation, source },
            Class::OutcomeUnknown => StorageError::OutcomeUnknown { operation, source },
            Class::Internal => StorageError::Internal { operation, source },
        }
    }
}

fn classify(error: &rusqlite::Error) -> Class {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Class::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Class::Contention,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed,
        ) => Class::Unavailable,
        // Corruption too: nothing that a caller could do makes it better.
        _ => Class::Internal,
    }
}

/// Whether a connection may go on to fail after this, although the file is whole: what it holds in
/// memory may not be what the disk holds, and only a new connection looks again.
pub(crate) fn breaks_connection(error: &rusqlite::Error) -> bool {
    let is_damage = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ApiMisuse)
    );
    is_damage || classify(error) == Class::Unavailable
}

/// A stored value that this version cannot read.
pub(crate) fn corrupt(what: &'static str) -> rusqlite::Error {
    #[derive(Debug, thiserror::Error)]
    #[error("the stored {0} cannot be read")]
    struct Corrupt(&'static str);
    rusqlite::Error::FromSqlConversionFailure(
        0,
        rusqlite::types::Type::Blob,
        Box::new(Corrupt(what)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn answer(code: i32, at_commit: bool) -> StorageError {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
        let failure =
            if at_commit { Failure::of_commit(error) } else { Failure::before_commit(error) };
        failure.answer("enqueue")
    }

    #[test]
    fn each_code_leads_to_one_decision() {
        use StorageError as E;
        assert!(matches!(answer(ffi::SQLITE_FULL, false), E::Full { .. }));
        assert!(matches!(answer(ffi::SQLITE_FULL, true), E::Full { .. }));
        assert!(matches!(answer(ffi::SQLITE_BUSY, false), E::Contention { .. }));
        assert!(matches!(answer(ffi::SQLITE_BUSY_SNAPSHOT, false), E::Contention { .. }));
        assert!(matches!(answer(ffi::SQLITE_IOERR_WRITE, false), E::Unavailable { .. }));
        assert!(matches!(answer(ffi::SQLITE_IOERR_FSYNC, true), E::OutcomeUnknown { .. }));
        assert!(matches!(answer(ffi::SQLITE_CANTOPEN, false), E::Unavailable { .. }));
        assert!(matches!(answer(ffi::SQLITE_READONLY, false), E::Unavailable { .. }));
        assert!(matches!(answer(ffi::SQLITE_CORRUPT, false), E::Internal { .. }));
        assert!(matches!(answer(ffi::SQLITE_CONSTRAINT, false), E::Internal { .. }));
    }
}
