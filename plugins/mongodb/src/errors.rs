//! What the driver's errors mean to whoever called: whether anything may have changed, and whether
//! to try again.

use mongodb::error::{Error, ErrorKind, WriteFailure};
use rdq_spi::{BoxError, StorageError};

/// The result of a step of a call.
pub(crate) type Step<T> = Result<T, Failure>;

/// Whether a command that failed may have changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Why a step failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Other writers were in the way, and nothing changed.
    Contention,
    /// The server did not get the command, or refused it for what it is now.
    Unavailable(BoxError),
    /// The command may or may not have been applied.
    Unknown(BoxError),
    /// No space left.
    Full(BoxError),
    /// What is stored cannot be read, or a bug.
    Internal(BoxError),
    /// An answer of the contract.
    Answer(StorageError),
}

/// What a server's error code means.
enum Code {
    /// Two writers met; nothing changed.
    Conflict,
    /// It is not the primary, and did nothing.
    NotPrimary,
    /// It ended or stepped down while the command ran.
    Interrupted,
    Full,
    Other,
}

/// The code of a document whose `_id` is taken.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;

fn code(code: i32) -> Code {
    match code {
        // WriteConflict, LockTimeout, LockBusy; of transactions: NoSuchTransaction, SnapshotTooOld,
        // SnapshotUnavailable, PreparedTransactionInProgress. And two who made one document at once.
        112 | 24 | 46 | 251 | 239 | 246 | 267 | DUPLICATE_KEY => Code::Conflict,
        // NotWritablePrimary, NotPrimaryNoSecondaryOk, and a member that is not ready.
        10_107 | 13_435 | 13_436 => Code::NotPrimary,
        // ShutdownInProgress, PrimarySteppedDown, InterruptedAtShutdown,
        // InterruptedDueToReplStateChange, MaxTimeMSExpired, Interrupted, network timeouts,
        // WriteConcernFailed.
        91 | 189 | 11_600 | 11_602 | 50 | 11_601 | 89 | 64 | 100 | 6 | 7 | 9_001 | 262 => {
            Code::Interrupted
        }
        // OutOfDiskSpace, and the quota's.
        14_031 | 12_501 => Code::Full,
        _ => Code::Other,
    }
}

impl Failure {
    /// What an error of a command means.
    pub(crate) fn of(error: Error, access: Access) -> Self {
        let found = match error.kind.as_ref() {
            ErrorKind::Command(error) => Some(error.code),
            ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
            // The write is there, on one member at least.
            ErrorKind::Write(WriteFailure::WriteConcernError(_)) => Some(64),
            // Nothing was sent.
            ErrorKind::ServerSelection { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Authentication { .. }
            | ErrorKind::Shutdown => return Self::Unavailable(error.into()),
            ErrorKind::Io(_)
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::InvalidResponse { .. } => Some(6),
            _ => None,
        };
        match found {
            Some(found) => Self::of_code(found, access, error.into()),
            None => Self::Internal(error.into()),
        }
    }

    /// What a server's error code means.
    pub(crate) fn of_code(found: i32, access: Access, cause: BoxError) -> Self {
        match code(found) {
            Code::Conflict => Self::Contention,
            Code::Interrupted if access == Access::Write => Self::Unknown(cause),
            Code::NotPrimary | Code::Interrupted => Self::Unavailable(cause),
            Code::Full => Self::Full(cause),
            Code::Other => Self::Internal(cause),
        }
    }

    /// The same, where an earlier step of the call has changed something already.
    pub(crate) fn after_a_write(self) -> Self {
        match self {
            Self::Contention => Self::Unknown("met contention after a write".into()),
            Self::Unavailable(cause) | Self::Full(cause) => Self::Unknown(cause),
            other => other,
        }
    }

    /// The same, for another who waited for the same command.
    pub(crate) fn again(&self) -> Self {
        let said = |cause: &BoxError| cause.to_string().into();
        match self {
            Self::Contention => Self::Contention,
            Self::Unavailable(cause) => Self::Unavailable(said(cause)),
            Self::Unknown(cause) => Self::Unknown(said(cause)),
            Self::Full(cause) => Self::Full(said(cause)),
            Self::Internal(cause) => Self::Internal(said(cause)),
            Self::Answer(error) => Self::Internal(error.to_string().into()),
        }
    }

    /// Whether the command did nothing and may do better when it is sent again.
    pub(crate) fn may_be_repeated(&self) -> bool {
        match self {
            Self::Contention => true,
            Self::Unavailable(cause) => cause.downcast_ref::<Error>().is_some_and(|error| {
                matches!(error.kind.as_ref(), ErrorKind::Command(error)
                    if matches!(code(error.code), Code::NotPrimary))
            }),
            _ => false,
        }
    }

    /// The answer to the caller.
    pub(crate) fn answer(self, operation: &'static str) -> StorageError {
        match self {
            Self::Contention => StorageError::Contention { operation },
            Self::Unavailable(source) => StorageError::Unavailable { operation, source },
            Self::Unknown(source) => StorageError::OutcomeUnknown { operation, source },
            Self::Full(source) => StorageError::Full { source },
            Self::Internal(source) => StorageError::Internal { operation, source },
            Self::Answer(error) => error,
        }
    }
}

/// Something stored that rdq does not store so.
pub(crate) fn corrupt(what: &'static str) -> Failure {
    Failure::Internal(format!("{what} is damaged").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_may_have_been_applied_is_told_apart_from_one_that_was_not() {
        let of = |code, access| Failure::of_code(code, access, "x".into());
        assert!(matches!(of(112, Access::Write), Failure::Contention));
        assert!(matches!(of(10_107, Access::Write), Failure::Unavailable(_)));
        for code in [91, 189, 11_600, 11_602, 50, 64] {
            assert!(matches!(of(code, Access::Write), Failure::Unknown(_)), "{code}");
            assert!(matches!(of(code, Access::Read), Failure::Unavailable(_)), "{code}");
        }
        assert!(matches!(of(14_031, Access::Write), Failure::Full(_)));
        assert!(matches!(of(1, Access::Write), Failure::Internal(_)));
        let late = of(10_107, Access::Read).after_a_write();
        assert!(matches!(late, Failure::Unknown(_)));
    }
}
