//! Errors by their reason, and what a retry can do about each. How often one is retried is decided
//! in `retry`.

use rdq_proto::{
    CONTRACT_VERSION, ERROR_DOMAIN,
    v1::{ErrorReason, ItemError},
};
use std::{collections::HashMap, error::Error as StdError, fmt, sync::Arc, time::Duration};
use tonic::{Code, ConnectError, Status, TimeoutExpired};
use tonic_types::StatusExt as _;

/// What is known of a failure: the same for every [`Error`].
#[derive(Debug, Clone)]
pub struct Details(Arc<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    code: Code,
    reason: Option<String>,
    message: String,
    metadata: HashMap<String, String>,
    outcome_unknown: bool,
    retry_after: Option<Duration>,
    source: Option<Status>,
}

impl fmt::Display for Details {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if f.alternate() {
            write!(f, " ({:?})", self.0.code)?;
        }
        Ok(())
    }
}

impl StdError for Details {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The status says the same again; what is worth showing stands behind it.
        self.0.source.as_ref().and_then(StdError::source)
    }
}

/// Makes the enum of errors from the names of the contract's reasons, so that none is forgotten: a
/// reason that is new in the contract does not compile until it has its line here.
macro_rules! errors {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Why a call, or one item of a batch, failed: one variant for each reason of the contract.
        ///
        /// Every variant carries the same [`Details`], so what needs no decision by reason asks the
        /// error itself: [`code`](Self::code), [`message`](Self::message),
        /// [`metadata`](Self::metadata), [`outcome_unknown`](Self::outcome_unknown),
        /// [`is_retryable`](Self::is_retryable).
        #[derive(Debug, Clone, thiserror::Error)]
        #[non_exhaustive]
        pub enum Error {
            $($(#[$doc])+ #[error(transparent)] $name(Details),)+
            /// The server's contract has another major version than this client's, so a worker does
            /// not work with it. The one that no server sends; the metadata `client_version` and
            /// `server_version` are the two.
            #[error(transparent)]
            OtherContractVersion(Details),
            /// A reason that this version does not know, or none: decide by [`Error::code`].
            #[error(transparent)]
            Other(Details),
        }

        impl Error {
            fn of(reason: Option<ErrorReason>, details: Details) -> Self {
                match reason {
                    $(Some(ErrorReason::$name) => Self::$name(details),)+
                    Some(ErrorReason::Unspecified) | None => Self::Other(details),
                }
            }

            fn details(&self) -> &Details {
                match self {
                    $(Self::$name(details))|+
                    | Self::OtherContractVersion(details)
                    | Self::Other(details) => details,
                }
            }

            fn details_mut(&mut self) -> &mut Details {
                match self {
                    $(Self::$name(details))|+
                    | Self::OtherContractVersion(details)
                    | Self::Other(details) => details,
                }
            }
        }
    };
}

errors! {
    /// The claim token is superseded or was never issued. Nothing changed; drop the work.
    StaleClaim,
    /// The queue still holds tasks.
    QueueNotEmpty,
    /// The page token is of a retired key or an older format: start again with the first page.
    StaleCursor,
    /// No such task.
    NotFound,
    /// No such queue.
    QueueNotFound,
    /// The task's id is taken in another queue.
    IdConflict,
    /// A lock was not had in time, or write conflicts went on for too long. Nothing changed.
    Contention,
    /// A name is empty, blank, too long or has control characters.
    InvalidName,
    /// A name starts with the reserved `__rdq_`.
    ReservedName,
    /// A value is missing, contradictory or out of range.
    InvalidArgument,
    /// The page token is none of this service's, or was changed.
    InvalidCursor,
    /// The page token belongs to another caller, list or filter.
    CursorBindingMismatch,
    /// A payload, or another part with a limit, is too large: see [`Error::limit_bytes`] and
    /// [`Error::size_bytes`].
    PayloadTooLarge,
    /// The server or its backend cannot do this.
    Unsupported,
    /// The storage cannot be reached.
    StorageUnavailable,
    /// The server is draining.
    Closed,
    /// Too many calls or streams at once. Nothing changed.
    Overloaded,
    /// The storage has no space left. Nothing changed.
    StorageFull,
    /// The request is larger than the server reads.
    MessageTooLarge,
    /// A fault of the service; its log has the detail under the metadata `correlation_id`.
    Internal,
    /// No valid credentials.
    Unauthenticated,
    /// The credentials do not grant this.
    PermissionDenied,
    /// The call's deadline passed.
    DeadlineExceeded,
    /// The record is at another revision than the call expects, or does not exist. Nothing changed.
    CasConflict,
    /// A schedule's spec or time zone is not one, or never comes.
    InvalidSpec,
    /// No such message of an outbox.
    OutboxMissing,
    /// The message is not claimed by that worker with that generation. Nothing changed.
    OutboxClaimMismatch,
    /// The ledger has a record of another request under this scope. Nothing changed.
    MutationConflict,
}

impl Error {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        self.details().0.code
    }

    /// The reason as the server named it, such as `STALE_CLAIM`; also one that this version does not
    /// know. None where the transport failed.
    pub fn reason(&self) -> Option<&str> {
        self.details().0.reason.as_deref()
    }

    /// What happened, for people.
    pub fn message(&self) -> &str {
        &self.details().0.message
    }

    /// What the message mentions, by the keys that the contract names for the reason.
    pub fn metadata(&self, key: &str) -> Option<&str> {
        self.details().0.metadata.get(key).map(String::as_str)
    }

    /// Everything that came as metadata.
    pub fn all_metadata(&self) -> &HashMap<String, String> {
        &self.details().0.metadata
    }

    /// Whether the change that was asked for may have happened all the same.
    pub fn outcome_unknown(&self) -> bool {
        self.details().0.outcome_unknown
    }

    /// Whether the same call can succeed later without anybody changing anything.
    ///
    /// The client has retried such a call already, within its deadline.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Contention(_) | Self::Overloaded(_) => true,
            _ => matches!(self.code(), Code::Unavailable | Code::DeadlineExceeded),
        }
    }

    /// Not before this, where the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.details().0.retry_after
    }

    /// The limit that was passed, in bytes.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.metadata("limit_bytes")?.parse().ok()
    }

    /// The size that was too large, in bytes.
    pub fn size_bytes(&self) -> Option<u64> {
        self.metadata("size_bytes")?.parse().ok()
    }

    /// An error of the client's own.
    pub(crate) fn local(reason: ErrorReason, code: Code, message: impl Into<String>) -> Self {
        Self::local_with(reason, code, message, HashMap::new())
    }

    pub(crate) fn local_with(
        reason: ErrorReason,
        code: Code,
        message: impl Into<String>,
        metadata: HashMap<String, String>,
    ) -> Self {
        let parts = Parts {
            code,
            reason: Some(reason.reason().to_owned()),
            message: message.into(),
            metadata,
            outcome_unknown: false,
            retry_after: None,
            source: None,
        };
        Self::of(Some(reason), Details(Arc::new(parts)))
    }

    /// A value that this client refuses before the server has to.
    pub(crate) fn invalid(field: &str, message: impl Into<String>) -> Self {
        let metadata = HashMap::from([("field".to_owned(), field.to_owned())]);
        Self::local_with(ErrorReason::InvalidArgument, Code::InvalidArgument, message, metadata)
    }

    /// The server speaks a version of the contract that this client does not.
    pub(crate) fn other_contract(server_version: &str) -> Self {
        let metadata = [("client_version", CONTRACT_VERSION), ("server_version", server_version)];
        let parts = Parts {
            code: Code::FailedPrecondition,
            reason: Some("OTHER_CONTRACT_VERSION".to_owned()),
            message: format!(
                "the server speaks version {server_version:?} of the contract, this client \
                 {CONTRACT_VERSION}"
            ),
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            outcome_unknown: false,
            retry_after: None,
            source: None,
        };
        Self::OtherContractVersion(Details(Arc::new(parts)))
    }

    /// Nobody answered within the time of a try.
    pub(crate) fn timed_out() -> Self {
        let parts = Parts {
            code: Code::DeadlineExceeded,
            reason: Some(ErrorReason::DeadlineExceeded.reason().to_owned()),
            message: "no answer in time".to_owned(),
            metadata: HashMap::new(),
            outcome_unknown: true,
            retry_after: None,
            source: None,
        };
        Self::DeadlineExceeded(Details(Arc::new(parts)))
    }

    /// A call with many items failed as a whole, by this: none of them was refused by it.
    pub(crate) fn unanswered(error: &Self) -> Self {
        match error {
            Self::Overloaded(_) | Self::Contention(_) => error.clone(),
            _ if error.code() == Code::Unavailable => error.clone(),
            _ => {
                let mut late = Self::timed_out();
                Arc::make_mut(&mut late.details_mut().0).retry_after = error.retry_after();
                late
            }
        }
    }

    /// Whether the server refused what the request says, so that the same request never succeeds.
    pub(crate) fn is_about_the_request(&self) -> bool {
        matches!(
            self,
            Self::InvalidArgument(_) | Self::MessageTooLarge(_) | Self::PayloadTooLarge(_)
        )
    }

    /// The same error of a call one of whose earlier tries may have changed what this one did not.
    pub(crate) fn with_outcome_unknown(mut self) -> Self {
        Arc::make_mut(&mut self.details_mut().0).outcome_unknown = true;
        self
    }

    /// The server answered what the contract does not allow.
    pub(crate) fn broken(what: &str) -> Self {
        let parts = Parts {
            code: Code::Internal,
            reason: None,
            message: format!("the server's answer {what}"),
            metadata: HashMap::new(),
            outcome_unknown: true,
            retry_after: None,
            source: None,
        };
        Self::Other(Details(Arc::new(parts)))
    }
}

fn says_unknown(metadata: &HashMap<String, String>) -> bool {
    metadata.get("outcome_unknown").is_some_and(|value| value == "true")
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let mut is_unsent = false;
        let mut is_late = false;
        let mut cause = status.source();
        let is_of_the_transport = cause.is_some();
        while let Some(error) = cause {
            is_unsent |= error.is::<ConnectError>();
            is_late |= error.is::<TimeoutExpired>();
            cause = error.source();
        }
        if is_late {
            return Self::timed_out();
        }
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == ERROR_DOMAIN);
        let (reason, metadata) = match info {
            Some(info) => (Some(info.reason.clone()), info.metadata.clone()),
            None => (None, HashMap::new()),
        };
        let known = reason.as_deref().and_then(ErrorReason::from_reason);
        // A broken connection comes as any of these.
        let is_broken = is_of_the_transport
            && matches!(
                status.code(),
                Code::Unknown | Code::Internal | Code::Cancelled | Code::Unavailable
            );
        let parts = Parts {
            code: if is_broken { Code::Unavailable } else { status.code() },
            reason,
            message: status.message().to_owned(),
            outcome_unknown: says_unknown(&metadata) || (is_broken && !is_unsent),
            metadata,
            retry_after: details.retry_info().and_then(|info| info.retry_delay),
            source: Some(status),
        };
        Self::of(known, Details(Arc::new(parts)))
    }
}

impl From<ItemError> for Error {
    fn from(item: ItemError) -> Self {
        let known = ErrorReason::try_from(item.reason).ok();
        let reason = known.filter(|reason| *reason != ErrorReason::Unspecified);
        let parts = Parts {
            code: Code::from_i32(item.code),
            reason: reason.map(|reason| reason.reason().to_owned()),
            message: item.message,
            outcome_unknown: says_unknown(&item.metadata),
            metadata: item.metadata,
            retry_after: None,
            source: None,
        };
        Self::of(reason, Details(Arc::new(parts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    fn said(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Error {
        let metadata: HashMap<_, _> =
            metadata.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let details = ErrorDetails::with_error_info(reason, ERROR_DOMAIN, metadata);
        Status::with_error_details(code, "said so", details).into()
    }

    #[test]
    fn a_reason_is_a_variant_and_its_metadata_are_read() {
        let sizes = [("limit_bytes", "10"), ("size_bytes", "11")];
        let error = said(Code::InvalidArgument, "PAYLOAD_TOO_LARGE", &sizes);
        assert!(matches!(error, Error::PayloadTooLarge(_)), "{error:?}");
        assert_eq!((error.limit_bytes(), error.size_bytes()), (Some(10), Some(11)));
        assert_eq!((error.to_string().as_str(), error.outcome_unknown()), ("said so", false));
    }

    #[test]
    fn every_reason_of_the_contract_has_its_own_variant() {
        for number in 1.. {
            let Ok(reason) = ErrorReason::try_from(number) else { break };
            let error = said(Code::Unknown, reason.reason(), &[]);
            assert!(format!("{error:?}").starts_with(&format!("{reason:?}(")), "{error:?}");
            assert_eq!(error.reason(), Some(reason.reason()));
        }
    }

    #[test]
    fn a_reason_that_is_not_known_is_there_with_its_code() {
        let error = said(Code::Aborted, "NEVER_HEARD_OF", &[]);
        assert!(matches!(error, Error::Other(_)), "{error:?}");
        assert_eq!((error.code(), error.reason()), (Code::Aborted, Some("NEVER_HEARD_OF")));
        assert!(!error.is_retryable());
    }

    #[test]
    fn what_is_retried_is_the_table() {
        for (code, reason, is_retryable) in [
            (Code::Unavailable, "STORAGE_UNAVAILABLE", true),
            (Code::Unavailable, "CLOSED", true),
            (Code::Unavailable, "NEVER_HEARD_OF", true),
            (Code::Aborted, "CONTENTION", true),
            (Code::ResourceExhausted, "OVERLOADED", true),
            (Code::ResourceExhausted, "STORAGE_FULL", false),
            (Code::ResourceExhausted, "MESSAGE_TOO_LARGE", false),
            (Code::Internal, "INTERNAL", false),
            (Code::FailedPrecondition, "STALE_CLAIM", false),
            (Code::DeadlineExceeded, "DEADLINE_EXCEEDED", true),
        ] {
            assert_eq!(said(code, reason, &[]).is_retryable(), is_retryable, "{reason}");
        }
        let lost = said(Code::Unavailable, "STORAGE_UNAVAILABLE", &[("outcome_unknown", "true")]);
        assert!(lost.is_retryable() && lost.outcome_unknown());
    }

    #[test]
    fn a_broken_connection_is_unavailable_and_a_server_s_own_word_is_not() {
        let broken = std::io::Error::new(std::io::ErrorKind::ConnectionReset, "reset");
        let error = Error::from(Status::from_error(Box::new(broken)));
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.is_retryable() && error.outcome_unknown());
        assert_eq!(Error::from(Status::unknown("hm")).code(), Code::Unknown);
    }

    #[test]
    fn when_to_come_again_is_read() {
        let mut details = ErrorDetails::with_error_info("OVERLOADED", ERROR_DOMAIN, []);
        details.set_retry_info(Some(Duration::from_secs(3)));
        let error = Error::from(Status::with_error_details(Code::ResourceExhausted, "", details));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    }
}
