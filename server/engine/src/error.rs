//! Why the engine refused a call: one variant per decision a caller makes. How it is put on the
//! wire is the daemon's matter.

use rdq_spi::{BoxError, MutationScope, QueueName, RecordName, ScheduleName, StorageError, TaskId};
use std::{sync::Arc, time::Duration};

/// Why the engine refused a call, or one item of it.
///
/// Not `non_exhaustive`: the one `match` that turns it into a status should fail to compile when a
/// variant appears.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The storage refused or failed. Shared, since one failed batch answers many callers.
    #[error(transparent)]
    Storage(Arc<StorageError>),
    /// A value is missing, contradictory or out of range. Nothing changed.
    #[error("{field} {message}")]
    InvalidArgument {
        /// The field, by its name in the contract.
        field: &'static str,
        /// What it must be, as the end of a sentence that starts with the field.
        message: String,
    },
    /// A part with a limit is too large. Nothing changed.
    #[error("{field} has {size_bytes} bytes, more than its limit of {limit_bytes}")]
    PayloadTooLarge {
        /// The field, by its name in the contract.
        field: &'static str,
        /// The limit.
        limit_bytes: u64,
        /// What came.
        size_bytes: u64,
    },
    /// This server demands that queues are declared, and this one is not.
    #[error("queue {queue:?} is not declared")]
    QueueNotFound {
        /// The queue.
        queue: QueueName,
    },
    /// No such record.
    #[error("record {name:?} was not found")]
    RecordNotFound {
        /// Its key.
        name: RecordName,
    },
    /// No such mutation.
    #[error("mutation {scope} was not found")]
    MutationNotFound {
        /// Its identity.
        scope: MutationScope,
    },
    /// No such message of an outbox.
    #[error("no outbox has message {id:?}")]
    OutboxMissing {
        /// The message.
        id: TaskId,
    },
    /// The message is not claimed by that worker with that generation. Nothing changed.
    #[error("message {id:?} is not claimed by that worker with that generation")]
    OutboxClaimMismatch {
        /// The message.
        id: TaskId,
    },
    /// The transaction was idle, or open, for too long. It was rolled back.
    #[error("the transaction was {what} for longer than {limit:?}, and is rolled back")]
    TransactionExpired {
        /// `idle` or `open`.
        what: &'static str,
        /// How long it may be that.
        limit: Duration,
    },
    /// A schedule's spec or time zone is not one, or never comes. Nothing changed.
    #[error("{field} {message}")]
    InvalidSpec {
        /// The field, by its name in the contract.
        field: &'static str,
        /// What it must be, as the end of a sentence that starts with the field.
        message: String,
    },
    /// No such schedule.
    #[error("schedule {name:?} was not found")]
    ScheduleNotFound {
        /// The schedule.
        name: ScheduleName,
    },
    /// The page token is not one of this service's, or was changed.
    #[error("the page token is not one of this service's")]
    InvalidCursor,
    /// The page token belongs to another caller, list or filter.
    #[error("the page token belongs to another caller, list or filter")]
    CursorBindingMismatch,
    /// The page token is of a retired key or an older format.
    #[error("the page token is of a retired key or an older format")]
    StaleCursor,
    /// Too many calls wait already. Nothing changed.
    #[error("too many calls wait already")]
    Overloaded {
        /// When to try again.
        retry_after: Duration,
    },
    /// The server is draining. Nothing changed.
    #[error("the server is draining")]
    Closed,
}

impl EngineError {
    pub(crate) fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        Self::InvalidArgument { field, message: message.into() }
    }

    pub(crate) fn internal(operation: &'static str, source: impl Into<BoxError>) -> Self {
        StorageError::Internal { operation, source: source.into() }.into()
    }

    pub(crate) fn not_found(task_id: TaskId) -> Self {
        StorageError::NotFound { task_id }.into()
    }

    /// Whether the storage said that a claim is over.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Storage(error) if matches!(**error, StorageError::StaleClaim { .. }))
    }

    /// Whether the storage said that there is no such task.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Storage(error) if matches!(**error, StorageError::NotFound { .. }))
    }

    pub(crate) fn stale(task_id: TaskId) -> Self {
        StorageError::StaleClaim { task_id, detail: None }.into()
    }
}

impl From<StorageError> for EngineError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Closed => Self::Closed,
            StorageError::InvalidPosition => Self::InvalidCursor,
            error => Self::Storage(Arc::new(error)),
        }
    }
}
