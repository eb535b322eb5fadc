//! Errors of the engine and of the conversion become gRPC statuses and item errors here, and nowhere
//! else.

use rdq_engine::EngineError;
use rdq_proto::{
    ERROR_DOMAIN,
    v1::{ErrorReason, ItemError, TransactError},
};
use rdq_spi::{MutationScope, NameError, StaleDetail, StorageError};
use std::{collections::HashMap, time::Duration};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// Repeat a refused call not before this, unless something better is known.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The storage's operations that change nothing, whatever becomes of them.
const READS: [&str; 18] = [
    "get",
    "list",
    "dlq_list",
    "stats",
    "live_claims",
    "queue_names",
    "queue_records",
    "ping",
    "wait_due",
    "listen",
    "read",
    "offset",
    "get_lock",
    "get_record",
    "list_records",
    "mutation",
    "claims_of",
    "now",
];

/// Why a call, or an item of one, was refused.
#[derive(Debug, Clone)]
pub(crate) enum Refusal {
    /// The engine refused it.
    Engine(EngineError),
    /// A name breaks the grammar.
    Name { field: &'static str, error: NameError },
    /// A value is missing, contradictory or out of range.
    Invalid { field: &'static str, message: String },
    /// A part is larger than its limit.
    TooLarge { field: &'static str, limit_bytes: usize, size_bytes: usize },
    /// An operation of a transaction was refused.
    Operation {
        /// Which, by its place.
        index: usize,
        /// Its member.
        kind: &'static str,
        /// Why.
        refusal: Box<Refusal>,
    },
    /// Too much at once.
    Overloaded { what: &'static str },
    /// The request is larger than the server reads.
    MessageTooLarge { limit_bytes: usize },
    /// The request does not decode.
    Undecodable,
    /// The service has no such method.
    UnknownMethod,
    /// The call's deadline passed.
    DeadlineExceeded,
    /// A handler panicked, or a promise of our own was broken. Logged with the id.
    Internal { correlation_id: String, outcome_unknown: bool },
}

impl From<EngineError> for Refusal {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl Refusal {
    /// An invalid value of `field`.
    pub(crate) fn invalid(field: &'static str, message: impl Into<String>) -> Self {
        Self::Invalid { field, message: message.into() }
    }

    /// Logs `what` went wrong under a new correlation id. It may have gone wrong after a change.
    pub(crate) fn internal(what: &dyn std::fmt::Display) -> Self {
        let correlation_id = rdq_engine::new_id().to_string();
        tracing::error!(%correlation_id, "internal error: {what}");
        Self::Internal { correlation_id, outcome_unknown: true }
    }

    /// The same, of a storage's operation. One that only reads changed nothing.
    fn internal_to(operation: &str, what: &dyn std::fmt::Display) -> Self {
        match Self::internal(what) {
            Self::Internal { correlation_id, .. } => {
                Self::Internal { correlation_id, outcome_unknown: !READS.contains(&operation) }
            }
            other => other,
        }
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Described::new(&refusal).into_status()
    }
}

/// The error of one item of a batch.
pub(crate) fn item_error(refusal: &Refusal) -> ItemError {
    let described = Described::new(refusal);
    ItemError {
        code: described.code as i32,
        reason: described.reason.into(),
        message: described.message,
        metadata: described.metadata,
    }
}

/// The error of one request of a transaction, which goes on.
pub(crate) fn transact_error(refusal: &Refusal) -> TransactError {
    let operation_index = match refusal {
        Refusal::Operation { index, .. } => i32::try_from(*index).ok(),
        _ => None,
    };
    TransactError { error: Some(item_error(refusal)), operation_index }
}

/// The error that an engine's answer stands for.
pub(crate) fn engine_status(error: EngineError) -> Status {
    Refusal::Engine(error).into()
}

struct Described {
    code: Code,
    reason: ErrorReason,
    message: String,
    metadata: HashMap<String, String>,
    field: Option<String>,
    retry_after: Option<Duration>,
}

impl Described {
    fn new(refusal: &Refusal) -> Self {
        use ErrorReason as R;
        match refusal {
            Refusal::Engine(error) => Self::engine(error),
            Refusal::Name { field, error } => {
                let reason = match error {
                    NameError::Reserved => R::ReservedName,
                    NameError::Blank | NameError::TooLong { .. } | NameError::Control => {
                        R::InvalidName
                    }
                };
                Self::field(reason, field, &format!("`{field}` {error}"))
            }
            Refusal::Invalid { field, message } => Self::field(R::InvalidArgument, field, message),
            Refusal::TooLarge { field, limit_bytes, size_bytes } => {
                Self::too_large(field, *limit_bytes as u64, *size_bytes as u64)
            }
            Refusal::Operation { index, kind, refusal } => {
                Self::new(refusal).of_operation(*index, kind)
            }
            Refusal::Overloaded { what } => {
                let message = format!("too many {what} at once; repeat later");
                let described = Self::plain(Code::ResourceExhausted, R::Overloaded, message);
                Self { retry_after: Some(RETRY_AFTER), ..described }
            }
            Refusal::MessageTooLarge { limit_bytes } => {
                let message =
                    format!("the request is larger than {limit_bytes} bytes; send less at once");
                Self::plain(Code::ResourceExhausted, R::MessageTooLarge, message)
                    .with("limit_bytes", limit_bytes)
            }
            Refusal::Undecodable => Self::plain(
                Code::InvalidArgument,
                R::InvalidArgument,
                "the request does not decode as the message that the method takes",
            ),
            Refusal::UnknownMethod => {
                Self::plain(Code::Unimplemented, R::Unsupported, "the service has no such method")
            }
            Refusal::DeadlineExceeded => Self::plain(
                Code::DeadlineExceeded,
                R::DeadlineExceeded,
                "the call's deadline passed; a change may have happened",
            )
            .with("outcome_unknown", "true"),
            Refusal::Internal { correlation_id, outcome_unknown } => {
                let message =
                    format!("internal error; the server's log has it under {correlation_id}");
                let described = Self::plain(Code::Internal, R::Internal, message)
                    .with("correlation_id", correlation_id);
                if *outcome_unknown { described.with("outcome_unknown", "true") } else { described }
            }
        }
    }

    // No `_` arm here or below: a new variant must be decided before it compiles.
    fn engine(error: &EngineError) -> Self {
        use ErrorReason as R;
        match error {
            EngineError::Storage(error) => Self::storage(error),
            EngineError::InvalidArgument { field, message } => {
                Self::field(R::InvalidArgument, field, message)
            }
            EngineError::PayloadTooLarge { field, limit_bytes, size_bytes } => {
                Self::too_large(field, *limit_bytes, *size_bytes)
            }
            EngineError::QueueNotFound { queue } => {
                let message =
                    format!("queue {queue:?} is not declared; declare it with PutQueue first");
                Self::plain(Code::NotFound, R::QueueNotFound, message).with("queue", queue)
            }
            EngineError::RecordNotFound { name } => {
                Self::plain(Code::NotFound, R::NotFound, error.to_string()).with("key", name)
            }
            EngineError::MutationNotFound { scope } => {
                Self::plain(Code::NotFound, R::NotFound, error.to_string()).of_scope(scope)
            }
            EngineError::OutboxMissing { id } => {
                Self::plain(Code::NotFound, R::OutboxMissing, error.to_string()).with("id", id)
            }
            EngineError::OutboxClaimMismatch { id } => {
                Self::plain(Code::Aborted, R::OutboxClaimMismatch, error.to_string()).with("id", id)
            }
            EngineError::TransactionExpired { .. } => {
                Self::plain(Code::DeadlineExceeded, R::DeadlineExceeded, error.to_string())
            }
            EngineError::InvalidSpec { field, message } => {
                Self::field(R::InvalidSpec, field, &format!("`{field}` {message}"))
            }
            EngineError::ScheduleNotFound { name } => {
                Self::plain(Code::NotFound, R::NotFound, error.to_string()).with("name", name)
            }
            EngineError::InvalidCursor => Self::field(
                R::InvalidCursor,
                "page_token",
                "the page token is not one of this service's, or was changed",
            ),
            EngineError::CursorBindingMismatch => Self::field(
                R::CursorBindingMismatch,
                "page_token",
                "the page token belongs to another caller, list or filter",
            ),
            EngineError::StaleCursor => Self::plain(
                Code::FailedPrecondition,
                R::StaleCursor,
                "the page token is of a retired key or an older format; start with the first page",
            ),
            EngineError::Overloaded { retry_after } => {
                let message = "too many calls at once; repeat later";
                let described = Self::plain(Code::ResourceExhausted, R::Overloaded, message);
                Self { retry_after: Some(*retry_after), ..described }
            }
            EngineError::Closed => Self::closed(),
        }
    }

    fn storage(error: &StorageError) -> Self {
        use ErrorReason as R;
        use StorageError as E;
        let plain = |code, reason| Self::plain(code, reason, error.to_string());
        match error {
            E::StaleClaim { task_id, detail } => {
                let described =
                    plain(Code::FailedPrecondition, R::StaleClaim).with("task_id", task_id);
                match detail {
                    Some(detail) => described.with("detail", stale_detail(*detail)),
                    None => described,
                }
            }
            E::NotFound { task_id } => plain(Code::NotFound, R::NotFound).with("task_id", task_id),
            E::IdConflict { task_id } => {
                plain(Code::AlreadyExists, R::IdConflict).with("task_id", task_id)
            }
            E::QueueNotEmpty { queue } => {
                plain(Code::FailedPrecondition, R::QueueNotEmpty).with("queue", queue)
            }
            E::CasConflict { name, expected_revision } => plain(Code::Aborted, R::CasConflict)
                .with("key", name)
                .with("expected_revision", expected_revision),
            E::MutationObserved { mutation } => {
                let described = plain(Code::AlreadyExists, R::MutationConflict);
                described.of_scope(&mutation.first.scope)
            }
            E::InvalidPosition => Self::field(R::InvalidCursor, "page_token", &error.to_string()),
            E::Unsupported { .. } => plain(Code::Unimplemented, R::Unsupported),
            E::Contention { .. } => {
                Self { retry_after: Some(RETRY_AFTER), ..plain(Code::Aborted, R::Contention) }
            }
            E::Full { .. } => {
                log_cause(error);
                plain(Code::ResourceExhausted, R::StorageFull)
            }
            E::Refused { .. } => plain(Code::InvalidArgument, R::InvalidArgument),
            E::Unavailable { .. } => {
                log_cause(error);
                let described = plain(Code::Unavailable, R::StorageUnavailable);
                Self { retry_after: Some(RETRY_AFTER), ..described }
            }
            E::OutcomeUnknown { .. } => {
                log_cause(error);
                plain(Code::Unavailable, R::StorageUnavailable).with("outcome_unknown", "true")
            }
            E::Closed => Self::closed(),
            E::Internal { operation, .. } => {
                Self::new(&Refusal::internal_to(operation, &chain(error)))
            }
        }
    }

    fn plain(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, reason, message, metadata: HashMap::new(), field: None, retry_after: None }
    }

    fn closed() -> Self {
        Self::plain(Code::Unavailable, ErrorReason::Closed, "the server is draining; connect again")
    }

    fn field(reason: ErrorReason, field: &'static str, message: &str) -> Self {
        let described = Self::plain(Code::InvalidArgument, reason, message);
        Self { field: Some(field.to_owned()), ..described }.with("field", field)
    }

    /// The same, of an operation of a transaction: the field is named from the commit on.
    fn of_operation(mut self, index: usize, kind: &str) -> Self {
        if let Some(field) = self.field.take() {
            let dot = if field.is_empty() { "" } else { "." };
            let field = format!("operations[{index}].{kind}{dot}{field}");
            self = self.with("field", &field);
            self.field = Some(field);
        }
        self.with("operation_index", index)
    }

    fn of_scope(self, scope: &MutationScope) -> Self {
        let MutationScope { subject, operation, key } = scope;
        self.with("subject", subject).with("operation", operation).with("key", key)
    }

    fn too_large(field: &'static str, limit_bytes: u64, size_bytes: u64) -> Self {
        let message = format!("`{field}` has {size_bytes} bytes; its limit is {limit_bytes}");
        Self::field(ErrorReason::PayloadTooLarge, field, &message)
            .with("limit_bytes", limit_bytes)
            .with("size_bytes", size_bytes)
    }

    fn with(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    fn into_status(self) -> Status {
        let mut details =
            ErrorDetails::with_error_info(self.reason.reason(), ERROR_DOMAIN, self.metadata);
        if let Some(field) = self.field {
            details.add_bad_request_violation(&field, &self.message);
        }
        if let Some(after) = self.retry_after {
            details.set_retry_info(Some(after));
        }
        Status::with_error_details(self.code, self.message, details)
    }
}

/// How the wire names what ended a task under its claim.
pub(crate) fn stale_detail(detail: StaleDetail) -> &'static str {
    match detail {
        StaleDetail::Cancelled => "CANCELLED",
        StaleDetail::Expired => "EXPIRED",
    }
}

fn log_cause(error: &StorageError) {
    tracing::warn!("storage: {}", chain(error));
}

fn chain(error: &StorageError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// What tonic itself answered before a handler ran, in the words of the contract; `None` if the
/// status is one of ours.
pub(crate) fn of_the_transport(
    code: Code,
    has_details: bool,
    limit_bytes: usize,
) -> Option<Refusal> {
    if has_details {
        return None;
    }
    match code {
        Code::OutOfRange => Some(Refusal::MessageTooLarge { limit_bytes }),
        Code::Internal => Some(Refusal::Undecodable),
        Code::Unimplemented => Some(Refusal::UnknownMethod),
        _ => None,
    }
}

/// A status that the decoder of a request stream gave, in the words of the contract.
pub(crate) fn of_request_stream(status: Status, limit_bytes: usize) -> Status {
    let has_details = !status.details().is_empty();
    of_the_transport(status.code(), has_details, limit_bytes).map_or(status, Status::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdq_spi::TaskId;
    use std::sync::Arc;

    fn status(error: StorageError) -> Status {
        engine_status(EngineError::Storage(Arc::new(error)))
    }

    #[test]
    fn an_error_carries_reason_metadata_and_what_to_do() {
        let task_id = TaskId::stored("t");
        let stale =
            status(StorageError::StaleClaim { task_id, detail: Some(StaleDetail::Cancelled) });
        let details = stale.get_error_details();
        let info = details.error_info().expect("an ErrorInfo");
        assert_eq!((stale.code(), info.reason.as_str()), (Code::FailedPrecondition, "STALE_CLAIM"));
        assert_eq!(info.metadata["detail"], "CANCELLED");
        assert_eq!(info.metadata["task_id"], "t");
    }

    #[test]
    fn an_error_after_which_a_change_may_stand_says_so() {
        let internal = |operation| StorageError::Internal { operation, source: "bug".into() };
        let unknown = |operation| StorageError::OutcomeUnknown { operation, source: "".into() };
        let unavailable = |operation| StorageError::Unavailable { operation, source: "".into() };
        for (status, says_so) in [
            (status(internal("resolve")), true),
            (status(internal("claim_due")), true),
            (status(internal("get")), false),
            (status(internal("live_claims")), false),
            (status(unknown("enqueue")), true),
            (status(unavailable("enqueue")), false),
            (Refusal::internal(&"a handler panicked").into(), true),
            (Refusal::DeadlineExceeded.into(), true),
        ] {
            let details = status.get_error_details();
            let info = details.error_info().expect("an ErrorInfo");
            let said = info.metadata.get("outcome_unknown").map(String::as_str);
            assert_eq!(said, says_so.then_some("true"), "{status:?}");
        }
    }

    #[test]
    fn the_cause_of_an_error_is_never_sent() {
        let secret = || "postgres://user:secret@host".into();
        for error in [
            StorageError::Internal { operation: "get", source: secret() },
            StorageError::Unavailable { operation: "get", source: secret() },
            StorageError::OutcomeUnknown { operation: "resolve", source: secret() },
            StorageError::Full { source: secret() },
        ] {
            let status = status(error);
            assert!(!format!("{status:?}").contains("secret"), "{status:?}");
            assert!(!String::from_utf8_lossy(status.details()).contains("secret"));
        }
    }
}
