//! Statuses and item errors become storage errors. It decides whether a change may have happened.

use rdq_proto::{
    ERROR_DOMAIN,
    v1::{ErrorReason, ItemError, TransactError},
};
use rdq_spi::{QueueName, RecordName, StaleDetail, StorageError, TaskId};
use std::{collections::HashMap, error::Error, fmt};
use tonic::{Code, ConnectError, Status};
use tonic_types::StatusExt as _;

/// The metadata that names an operation of a transaction.
const OPERATION_INDEX: &str = "operation_index";

/// An operation of the storage contract.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// Whether it changes what is stored: then a lost answer leaves the outcome unknown.
    pub(crate) changes: bool,
}

impl Operation {
    pub(crate) const fn reading(name: &'static str) -> Self {
        Self { name, changes: false }
    }

    pub(crate) const fn changing(name: &'static str) -> Self {
        Self { name, changes: true }
    }

    /// The other server answered what the contract does not allow.
    pub(crate) fn broken(self, what: impl fmt::Display) -> StorageError {
        let source = format!("the other server's answer {what}").into();
        StorageError::Internal { operation: self.name, source }
    }
}

/// Why a call, or one item of it, failed.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    code: Code,
    /// What the other server said; unset if the transport failed, or nobody knows the reason.
    reason: Option<ErrorReason>,
    message: String,
    metadata: HashMap<String, String>,
    /// Nothing was sent: there was no connection.
    is_unsent: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl Error for Failure {}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let info = status.get_details_error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let (reason, metadata) = match info {
            Some(info) => (ErrorReason::from_reason(&info.reason), info.metadata),
            None => (None, HashMap::new()),
        };
        let mut cause = status.source();
        let mut is_unsent = false;
        while let Some(error) = cause {
            is_unsent |= error.is::<ConnectError>();
            cause = error.source();
        }
        let message = status.message().to_owned();
        Self { code: status.code(), reason, message, metadata, is_unsent }
    }
}

impl From<TransactError> for Failure {
    fn from(error: TransactError) -> Self {
        let TransactError { error, operation_index } = error;
        let mut failure = error.map_or_else(Self::unanswered, Self::from);
        if let Some(index) = operation_index {
            failure.metadata.insert(OPERATION_INDEX.to_owned(), index.to_string());
        }
        failure
    }
}

impl From<ItemError> for Failure {
    fn from(error: ItemError) -> Self {
        Self {
            code: Code::from_i32(error.code),
            reason: ErrorReason::try_from(error.reason).ok(),
            message: error.message,
            metadata: error.metadata,
            is_unsent: false,
        }
    }
}

impl Failure {
    /// The call's time was over.
    pub(crate) fn timed_out() -> Self {
        Self {
            code: Code::DeadlineExceeded,
            reason: None,
            message: "no answer in time".to_owned(),
            metadata: HashMap::new(),
            is_unsent: false,
        }
    }

    /// An item of a batch has no answer: what became of it is not known.
    pub(crate) fn unanswered() -> Self {
        Self {
            message: "an item has no outcome".to_owned(),
            code: Code::Unknown,
            ..Self::timed_out()
        }
    }

    /// The transaction ended before its time.
    pub(crate) fn rolled_back() -> Self {
        Self {
            message: "the transaction is over".to_owned(),
            code: Code::Aborted,
            ..Self::timed_out()
        }
    }

    /// Which operation of a transaction it is about.
    pub(crate) fn operation_index(&self) -> Option<usize> {
        self.metadata.get(OPERATION_INDEX)?.parse().ok()
    }

    /// Whether the server has no such thing.
    pub(crate) fn is_not_found(&self) -> bool {
        self.reason == Some(ErrorReason::NotFound)
    }

    /// The storage error that it stands for; `task` is what it is about, where the answer does not
    /// say.
    pub(crate) fn error(&self, operation: Operation, task: Option<&TaskId>) -> StorageError {
        use ErrorReason as R;
        let Some(reason) = self.reason.filter(|reason| *reason != R::Unspecified) else {
            return self.by_code(operation);
        };
        let task_id = || match (self.metadata.get("task_id"), task) {
            (Some(id), _) => TaskId::stored(id.as_str()),
            (None, Some(id)) => id.clone(),
            (None, None) => TaskId::stored(""),
        };
        match reason {
            R::StaleClaim => StorageError::StaleClaim { task_id: task_id(), detail: self.detail() },
            R::NotFound => StorageError::NotFound { task_id: task_id() },
            R::IdConflict => StorageError::IdConflict { task_id: task_id() },
            R::QueueNotEmpty => {
                let queue = self.metadata.get("queue").map_or("", String::as_str);
                StorageError::QueueNotEmpty { queue: QueueName::stored(queue) }
            }
            R::CasConflict => {
                let of = |key: &str| self.metadata.get(key).map_or("", String::as_str);
                StorageError::CasConflict {
                    name: RecordName::stored(of("key")),
                    expected_revision: of("expected_revision").parse().unwrap_or(0),
                }
            }
            R::StaleCursor | R::InvalidCursor | R::CursorBindingMismatch => {
                StorageError::InvalidPosition
            }
            R::Contention | R::Overloaded => StorageError::Contention { operation: operation.name },
            R::QueueNotFound
            | R::InvalidName
            | R::ReservedName
            | R::InvalidArgument
            | R::InvalidSpec
            | R::PayloadTooLarge
            | R::MessageTooLarge
            | R::OutboxMissing
            | R::OutboxClaimMismatch
            | R::MutationConflict
            | R::Unauthenticated
            | R::PermissionDenied => self.refused(operation),
            R::Unsupported => StorageError::Unsupported { operation: operation.name },
            // Of the other server's shutdown; this handle is open.
            R::StorageUnavailable | R::Closed if !self.says_unknown() => {
                self.unavailable(operation)
            }
            R::StorageUnavailable | R::Closed | R::DeadlineExceeded => self.unknown(operation),
            R::StorageFull => StorageError::Full { source: self.source() },
            R::Internal => self.internal(operation),
            R::Unspecified => self.by_code(operation),
        }
    }

    /// What the transport said, or a server whose reasons this version does not know.
    fn by_code(&self, operation: Operation) -> StorageError {
        match self.code {
            Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::NotFound
            | Code::AlreadyExists
            | Code::Unauthenticated
            | Code::PermissionDenied => self.refused(operation),
            Code::Aborted => StorageError::Contention { operation: operation.name },
            Code::Unimplemented => StorageError::Unsupported { operation: operation.name },
            Code::Internal | Code::DataLoss if self.reason.is_some() => self.internal(operation),
            // A broken connection comes as any of these.
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::DataLoss
            | Code::ResourceExhausted
            | Code::Ok
                if self.is_unsent =>
            {
                self.unavailable(operation)
            }
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::DataLoss
            | Code::ResourceExhausted
            | Code::Ok => self.unknown(operation),
        }
    }

    fn detail(&self) -> Option<StaleDetail> {
        match self.metadata.get("detail").map(String::as_str) {
            Some("CANCELLED") => Some(StaleDetail::Cancelled),
            Some("EXPIRED") => Some(StaleDetail::Expired),
            _ => None,
        }
    }

    fn says_unknown(&self) -> bool {
        self.metadata.get("outcome_unknown").is_some_and(|value| value == "true")
    }

    fn unknown(&self, operation: Operation) -> StorageError {
        if operation.changes {
            StorageError::OutcomeUnknown { operation: operation.name, source: self.source() }
        } else {
            self.unavailable(operation)
        }
    }

    fn unavailable(&self, operation: Operation) -> StorageError {
        StorageError::Unavailable { operation: operation.name, source: self.source() }
    }

    fn refused(&self, operation: Operation) -> StorageError {
        StorageError::Refused { operation: operation.name, message: self.message.clone() }
    }

    fn internal(&self, operation: Operation) -> StorageError {
        StorageError::Internal { operation: operation.name, source: self.source() }
    }

    fn source(&self) -> rdq_spi::BoxError {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    const GET: Operation = Operation::reading("get");
    const RESOLVE: Operation = Operation::changing("resolve");

    fn said(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Failure {
        let metadata: HashMap<_, _> =
            metadata.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata);
        Status::with_error_details(code, "said so", details).into()
    }

    #[test]
    fn a_reason_decides_and_the_metadata_fill_in() {
        let stale = said(
            Code::FailedPrecondition,
            "STALE_CLAIM",
            &[("task_id", "t"), ("detail", "CANCELLED")],
        );
        let error = stale.error(RESOLVE, None);
        let StorageError::StaleClaim { task_id, detail } = error else { panic!("{error:?}") };
        assert_eq!((task_id.as_str(), detail), ("t", Some(StaleDetail::Cancelled)));

        let other = TaskId::stored("other");
        let error = said(Code::NotFound, "NOT_FOUND", &[]).error(GET, Some(&other));
        assert!(matches!(error, StorageError::NotFound { task_id } if task_id == other));
    }

    #[test]
    fn only_a_change_that_may_have_happened_is_unknown() {
        let unavailable = said(Code::Unavailable, "STORAGE_UNAVAILABLE", &[]);
        let lost = said(Code::Unavailable, "STORAGE_UNAVAILABLE", &[("outcome_unknown", "true")]);
        let late = said(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", &[]);
        let broken = Failure::from(Status::unknown("h2 protocol error"));
        let unsent = Failure { is_unsent: true, ..Failure::from(Status::unavailable("refused")) };
        for (failure, may_have_happened) in [
            (unavailable, false),
            (lost, true),
            (late, true),
            (broken, true),
            (unsent, false),
            (Failure::timed_out(), true),
        ] {
            let error = failure.error(RESOLVE, None);
            let is_unknown = matches!(error, StorageError::OutcomeUnknown { .. });
            assert_eq!(is_unknown, may_have_happened, "{error:?}");
            let error = failure.error(GET, None);
            assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
        }
    }

    #[test]
    fn reasons_of_a_newer_server_are_read_by_their_code() {
        for (code, expected) in [
            (Code::Aborted, "Contention"),
            (Code::InvalidArgument, "Refused"),
            (Code::Unimplemented, "Unsupported"),
        ] {
            let error = said(code, "NEVER_HEARD_OF", &[]).error(RESOLVE, None);
            assert!(format!("{error:?}").starts_with(expected), "{error:?}");
        }
    }
}
