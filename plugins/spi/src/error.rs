//! Why a storage call failed: one variant per decision that is made on it.

use crate::{Mutation, QueueName, RecordName, TaskId};

/// The cause of an error: logged, never sent.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a storage call, or of one item of it.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// What ended a task under its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleDetail {
    /// Somebody cancelled it.
    Cancelled,
    /// It outlived its `expires_at`.
    Expired,
}

/// Why a storage call failed.
///
/// Not `non_exhaustive`: many plugins make these, and the one `match` that turns them into answers
/// should fail to compile when a variant appears.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The token is superseded or was never issued. Nothing changed.
    #[error("the claim on task {task_id:?} is stale")]
    StaleClaim {
        /// The task.
        task_id: TaskId,
        /// What ended it, if something but a claim did.
        detail: Option<StaleDetail>,
    },
    /// No such task.
    #[error("task {task_id:?} was not found")]
    NotFound {
        /// The task.
        task_id: TaskId,
    },
    /// The id is taken in another queue. Nothing changed.
    #[error("task id {task_id:?} is taken in another queue")]
    IdConflict {
        /// The task.
        task_id: TaskId,
    },
    /// The queue holds tasks. Nothing changed.
    #[error("queue {queue:?} still holds tasks")]
    QueueNotEmpty {
        /// The queue.
        queue: QueueName,
    },
    /// The record has another revision than the change expects, or does not exist. Nothing changed.
    #[error("record {name:?} is not at revision {expected_revision}")]
    CasConflict {
        /// Its key.
        name: RecordName,
        /// What the change expected.
        expected_revision: i64,
    },
    /// The mutation's scope has a record already. Nothing changed.
    #[error("mutation {} was observed before", mutation.first.scope)]
    MutationObserved {
        /// The record.
        mutation: Box<Mutation>,
    },
    /// The position is not one that this plugin minted for this list.
    #[error("the position is not one of this list")]
    InvalidPosition,
    /// The plugin does not have the operation. Nothing changed.
    #[error("{operation} is not supported by this storage")]
    Unsupported {
        /// Which.
        operation: &'static str,
    },
    /// Another writer was in the way for longer than the retry budget. Nothing changed.
    #[error("{operation} met contention")]
    Contention {
        /// Which.
        operation: &'static str,
    },
    /// The backend has no space left. Nothing changed.
    #[error("the storage is full")]
    Full {
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The backend refused the input. Nothing changed.
    #[error("the storage refused {operation}: {message}")]
    Refused {
        /// Which.
        operation: &'static str,
        /// Why, for the caller to read.
        message: String,
    },
    /// The backend cannot be reached. Nothing changed.
    #[error("the storage is unavailable")]
    Unavailable {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The change may or may not be stored, for instance after a lost commit answer.
    #[error("the outcome of {operation} is unknown")]
    OutcomeUnknown {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// The handle is closed. Nothing changed.
    #[error("the storage is closed")]
    Closed,
    /// A bug, or corrupt data. Logged with its cause, never retried.
    #[error("{operation} failed")]
    Internal {
        /// Which.
        operation: &'static str,
        /// Why.
        #[source]
        source: BoxError,
    },
}

impl StorageError {
    /// Whether this is the storage's own trouble, not a refusal of what was asked: nothing but a
    /// rollback is left of an interactive transaction that met it.
    pub fn ends_transaction(&self) -> bool {
        match self {
            Self::Contention { .. }
            | Self::Full { .. }
            | Self::Unavailable { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Closed
            | Self::Internal { .. } => true,
            Self::StaleClaim { .. }
            | Self::NotFound { .. }
            | Self::IdConflict { .. }
            | Self::QueueNotEmpty { .. }
            | Self::CasConflict { .. }
            | Self::MutationObserved { .. }
            | Self::InvalidPosition
            | Self::Unsupported { .. }
            | Self::Refused { .. } => false,
        }
    }
}
