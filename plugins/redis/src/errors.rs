//! Redis' errors as storage errors: decides what was full, unreachable, unknown or a bug. It logs
//! nothing and answers nobody.

use rdq_spi::{BoxError, StorageError};
use redis::RedisError;

/// What a call may have done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only looked.
    Reads,
    /// It may have changed something, if it arrived.
    Writes,
}

/// What to do about an error that the server, or the way to it, answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// The library is not there: nothing ran.
    NoFunction,
    /// Over `maxmemory`: nothing ran.
    Full,
    /// The server refuses for now: nothing ran. Another server may be at the address by then.
    Refused,
    /// The answer did not come, or not whole.
    Lost,
    /// Anything else is a bug.
    Bug,
}

/// Codes of refusals that come before anything ran.
const REFUSALS: [&str; 17] = [
    "READONLY",    // a replica
    "LOADING",     // it reads its file
    "MISCONF",     // it cannot write its file
    "MASTERDOWN",  // a replica without a primary
    "NOREPLICAS",  // min-replicas-to-write
    "CLUSTERDOWN", // and the others of a cluster
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "CROSSSLOT",
    "BUSY", // another client's script runs on
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "UNKILLABLE",
    "UNBLOCKED",
    "DENIED", // protected mode
];

/// What an error means.
pub(crate) fn classify(error: &RedisError) -> Class {
    if is_of_the_way(error) {
        return Class::Lost;
    }
    match error.code() {
        Some("OOM") => Class::Full,
        Some(code) if REFUSALS.contains(&code) => Class::Refused,
        Some("ERR") if error.detail().is_some_and(|it| it.contains("Function not found")) => {
            Class::NoFunction
        }
        Some("ERR") if error.detail().is_some_and(|it| it.contains("max number of clients")) => {
            Class::Refused
        }
        _ if error.kind() == redis::ErrorKind::AuthenticationFailed => Class::Refused,
        _ => Class::Bug,
    }
}

fn is_of_the_way(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Io | redis::ErrorKind::Parse)
}

/// The error as the answer to a call.
pub(crate) fn answer(operation: &'static str, access: Access, error: RedisError) -> StorageError {
    let class = classify(&error);
    let source = BoxError::from(error);
    match class {
        Class::Full => StorageError::Full { source },
        Class::Refused => StorageError::Unavailable { operation, source },
        Class::Lost if access == Access::Reads => StorageError::Unavailable { operation, source },
        Class::Lost => StorageError::OutcomeUnknown { operation, source },
        // A library that stays missing although it was loaded.
        Class::NoFunction | Class::Bug => StorageError::Internal { operation, source },
    }
}

/// No connection: nothing was sent.
pub(crate) fn unreachable(operation: &'static str, source: impl Into<BoxError>) -> StorageError {
    StorageError::Unavailable { operation, source: source.into() }
}

/// An answer or a stored value that this version cannot read.
pub(crate) fn corrupt(operation: &'static str, what: &'static str) -> StorageError {
    #[derive(Debug, thiserror::Error)]
    #[error("the {0} cannot be read")]
    struct Corrupt(&'static str);
    StorageError::Internal { operation, source: Box::new(Corrupt(what)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    fn of_server(line: &str) -> RedisError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn each_code_leads_to_one_decision() {
        for (line, class) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", Class::Full),
            ("READONLY You can't write against a read only replica.", Class::Refused),
            ("LOADING Redis is loading the dataset in memory", Class::Refused),
            ("MISCONF Errors writing to the AOF file: No space left on device", Class::Refused),
            ("MASTERDOWN Link with MASTER is down", Class::Refused),
            ("NOREPLICAS Not enough good replicas to write.", Class::Refused),
            ("CLUSTERDOWN Hash slot not served", Class::Refused),
            ("MOVED 3999 127.0.0.1:6381", Class::Refused),
            ("BUSY Redis is busy running a script.", Class::Refused),
            ("NOAUTH Authentication required.", Class::Refused),
            ("NOPERM this user has no permissions", Class::Refused),
            ("ERR max number of clients reached", Class::Refused),
            ("ERR Function not found", Class::NoFunction),
            ("ERR user_function:7: attempt to index a nil value", Class::Bug),
            ("WRONGTYPE Operation against a key", Class::Bug),
        ] {
            assert_eq!(classify(&of_server(line)), class, "{line}");
        }
    }

    #[test]
    fn a_lost_answer_is_unknown_to_a_writer_alone() {
        let lost = || RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut));
        let written = answer("enqueue", Access::Writes, lost());
        assert!(matches!(written, StorageError::OutcomeUnknown { .. }), "{written:?}");
        let read = answer("get", Access::Reads, lost());
        assert!(matches!(read, StorageError::Unavailable { .. }), "{read:?}");
    }
}
