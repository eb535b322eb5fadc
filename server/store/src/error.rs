//! Why a call in process failed: a variant where a caller acts differently on it.

use crate::OpenError;
use rdq_engine::{EngineError, OperationError, RunSchedulesError};
use rdq_spi::{NameError, StorageError};

/// The result of a call.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a call failed. "No work", "not acquired" and "already there" are answers, not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A name is empty, blank, too long or has control characters.
    #[error("`{field}` {error}")]
    InvalidName {
        /// What was to be named.
        field: &'static str,
        /// Why.
        error: NameError,
    },
    /// A name starts with the reserved `__rdq_`.
    #[error("`{field}` must not start with the reserved prefix `__rdq_`")]
    ReservedName {
        /// What was to be named.
        field: &'static str,
    },
    /// A payload is more than the backend or the queue takes.
    #[error("`{field}` has {size} bytes; at most {limit} are taken")]
    PayloadTooLarge {
        /// Which.
        field: &'static str,
        /// The limit, in bytes.
        limit: u64,
        /// What came, in bytes.
        size: u64,
    },
    /// A value does not become JSON, or a payload does not become the type that was asked for.
    #[error("the payload does not fit its type")]
    Codec(#[from] serde_json::Error),
    /// A schedule's spec or time zone is not one, or never comes.
    #[error("{0}")]
    InvalidSpec(String),
    /// Somebody else runs the schedules now, or may.
    #[error("the schedules are run by somebody else")]
    LeadershipLost,
    /// The record has another revision than the change expects. Nothing changed.
    #[error("the record is not at revision {expected_revision}")]
    CasConflict {
        /// What the change expected.
        expected_revision: i64,
    },
    /// Somebody else's writes were in the way. Nothing changed; try again.
    #[error("another writer was in the way")]
    Contention,
    /// The backend does not have this.
    #[error("this backend has no {operation}")]
    Unsupported {
        /// What.
        operation: &'static str,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
    /// Anything else: the storage's trouble, or an argument that is out of range.
    #[error(transparent)]
    Database(EngineError),
}

impl From<EngineError> for StoreError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Closed => Self::Closed,
            EngineError::InvalidSpec { .. } => Self::InvalidSpec(error.to_string()),
            EngineError::PayloadTooLarge { field, limit_bytes, size_bytes } => {
                Self::PayloadTooLarge { field, limit: limit_bytes, size: size_bytes }
            }
            EngineError::Storage(ref cause) => match **cause {
                StorageError::Closed => Self::Closed,
                StorageError::Contention { .. } => Self::Contention,
                StorageError::Unsupported { operation } => Self::Unsupported { operation },
                StorageError::CasConflict { expected_revision, .. } => {
                    Self::CasConflict { expected_revision }
                }
                _ => Self::Database(error),
            },
            error => Self::Database(error),
        }
    }
}

impl From<OperationError> for StoreError {
    fn from(error: OperationError) -> Self {
        error.error.into()
    }
}

impl From<RunSchedulesError> for StoreError {
    fn from(error: RunSchedulesError) -> Self {
        match error {
            RunSchedulesError::LeadershipLost => Self::LeadershipLost,
            RunSchedulesError::Engine(error) => error.into(),
        }
    }
}

/// Checks a name; `field` says of what.
pub(crate) fn named<T>(field: &'static str, name: std::result::Result<T, NameError>) -> Result<T> {
    name.map_err(|error| match error {
        NameError::Reserved => StoreError::ReservedName { field },
        error => StoreError::InvalidName { field, error },
    })
}
