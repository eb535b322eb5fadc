//! Why a command did not succeed: the exit code, and what a person should do about it. It knows
//! every reason of the contract and no command.

use crate::output::Format;
use rdq_daemon::ServeError;
use rdq_proto::v1::ErrorReason;
use std::{error::Error, fmt, io, process::ExitCode};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// How a command ended that did what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything was done.
    Done,
    /// There was nothing to do: no due task, no dead letter that matched.
    Nothing,
    /// Part of it was refused; what and why is printed already.
    Refused,
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum CliError {
    /// The arguments make no sense together, or a file they name does not.
    Usage(String),
    /// Nobody answers at the address.
    Unreachable {
        /// The address.
        server: String,
        /// Why.
        source: tonic::transport::Error,
    },
    /// The server answered with an error.
    Status(Box<Status>),
    /// A stream ended in the middle.
    Cut(&'static str),
    /// Standard output is gone, or a file cannot be read.
    Io(io::Error),
    /// The answer is not what the contract says.
    Malformed(String),
    /// `rdq serve` could not serve, or not to its end; or `rdq migrate` could not prepare.
    Serve(ServeError),
}

/// The table of exit codes, for `--help`.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  refused: the server or the system said no, a task was not found, or a check failed
  2  usage: the arguments are wrong
  3  unavailable: no server at the address, or one without its storage; try again later
  4  nothing to do: no task was due, no dead letter or event was there, a lock is another's";

/// What the process reports of a result.
pub(crate) fn exit_code(result: &Result<Outcome, CliError>) -> u8 {
    match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::Nothing) => 4,
        Err(CliError::Usage(_) | CliError::Serve(ServeError::Config(_))) => 2,
        Err(error) if is_outage(error) => 3,
        // Who reads our output has seen enough: `rdq list q | head` did all it should.
        Err(CliError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Ok(Outcome::Refused) | Err(_) => 1,
    }
}

/// Prints what went wrong on standard error, and ends the process's work.
pub(crate) fn conclude(result: &Result<Outcome, CliError>, format: Format) -> ExitCode {
    let code = exit_code(result);
    if let Err(error) = result
        && code != 0
    {
        match format {
            Format::Table => eprint!("{}", Report(error)),
            Format::Json => eprintln!("{}", as_json(error)),
        }
    }
    ExitCode::from(code)
}

/// Whether trying again later is all there is to do.
pub(crate) fn is_outage(error: &CliError) -> bool {
    match error {
        CliError::Unreachable { .. } | CliError::Cut(_) => true,
        CliError::Status(status) => is_unavailable(status),
        _ => false,
    }
}

fn is_unavailable(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

/// What the contract says of a status: its reason, and the metadata in a stable order.
struct Refusal {
    reason: String,
    metadata: Vec<(String, String)>,
}

fn refusal(status: &Status) -> Option<Refusal> {
    let info = status.get_details_error_info()?;
    let mut metadata: Vec<_> = info.metadata.into_iter().collect();
    metadata.sort();
    Some(Refusal { reason: info.reason, metadata })
}

/// The reason's name, or the name of the gRPC code where there is none.
fn reason_of(error: &CliError) -> String {
    match error {
        CliError::Usage(_) => "USAGE".into(),
        CliError::Unreachable { .. } | CliError::Cut(_) => "UNREACHABLE".into(),
        CliError::Status(status) => match refusal(status) {
            Some(refusal) => refusal.reason,
            None => format!("{:?}", status.code()).to_uppercase(),
        },
        CliError::Io(_) => "IO".into(),
        CliError::Malformed(_) => "MALFORMED".into(),
        CliError::Serve(_) => "SERVE".into(),
    }
}

/// An error as people read it: reason and message, what it is about, what to do.
struct Report<'a>(&'a CliError);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        match error {
            CliError::Status(_) => writeln!(f, "error: {}: {error}", reason_of(error))?,
            _ => writeln!(f, "error: {error}")?,
        }
        // Layers repeat each other; each message once is enough.
        let mut told = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            let message = source.to_string();
            if !told.contains(&message) {
                writeln!(f, "  because: {message}")?;
                told = message;
            }
            cause = source.source();
        }
        if let CliError::Status(status) = error
            && let Some(refusal) = refusal(status)
        {
            for (key, value) in &refusal.metadata {
                writeln!(f, "  {key}: {value}")?;
            }
        }
        match advice(error) {
            "" => Ok(()),
            advice => writeln!(f, "  what to do: {advice}"),
        }
    }
}

fn as_json(error: &CliError) -> serde_json::Value {
    let metadata = match error {
        CliError::Status(status) => refusal(status).map(|refusal| refusal.metadata),
        _ => None,
    };
    let metadata: serde_json::Map<String, serde_json::Value> =
        metadata.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into())).collect();
    serde_json::json!({ "error": {
        "reason": reason_of(error),
        "message": error.to_string(),
        "metadata": metadata,
    }})
}

/// What a person does about it; empty where the message says all.
fn advice(error: &CliError) -> &'static str {
    match error {
        CliError::Usage(_) => "see `--help` of the command",
        CliError::Unreachable { .. } => {
            "start a server with `rdq serve`, or name another with --server or RDQ_SERVER"
        }
        CliError::Cut(_) => "look at the state with `rdq stats`, then run the command again",
        CliError::Serve(ServeError::Io(error)) if error.kind() == io::ErrorKind::AddrInUse => {
            "end what listens there, or choose other addresses with --listen and --http"
        }
        CliError::Io(_) | CliError::Serve(_) => "",
        CliError::Malformed(_) => "the server may speak another version of the contract",
        CliError::Status(status) => {
            match refusal(status).and_then(|refusal| ErrorReason::from_reason(&refusal.reason)) {
                Some(reason) => advice_on(reason),
                None if is_unavailable(status) => "try again; a longer --timeout may help",
                None => "",
            }
        }
    }
}

/// Exhaustive, so that a new reason is thought about here before it compiles.
fn advice_on(reason: ErrorReason) -> &'static str {
    match reason {
        ErrorReason::StaleClaim => {
            "drop the work: the task has ended, or belongs to a newer claim (`rdq get ID` tells)"
        }
        ErrorReason::QueueNotEmpty => {
            "finish or cancel its tasks, purge its dead letters, and let retention remove the rest"
        }
        ErrorReason::StaleCursor
        | ErrorReason::InvalidCursor
        | ErrorReason::CursorBindingMismatch => {
            "start again with the first page: leave out --page-token"
        }
        ErrorReason::NotFound => "check the id; retention may have removed a finished task",
        ErrorReason::QueueNotFound => "declare the queue with `rdq queue put`, or check its name",
        ErrorReason::IdConflict => "choose another --id, or enqueue into the queue that has it",
        ErrorReason::Contention | ErrorReason::Overloaded => "nothing changed; try again later",
        ErrorReason::CasConflict => "read the record again: somebody changed it meanwhile",
        ErrorReason::InvalidSpec => {
            "see `rdq schedule put --help` for the specs; time zones are IANA names"
        }
        ErrorReason::OutboxMissing => "check the id; retention may have removed the message",
        ErrorReason::OutboxClaimMismatch => "drop the work: the message belongs to a newer claim",
        ErrorReason::MutationConflict => {
            "use another key: this one stands for another request, and keeps its answer"
        }
        ErrorReason::InvalidName | ErrorReason::ReservedName => {
            "names have 1 to 240 bytes, no control characters, and do not start with `__rdq_`"
        }
        ErrorReason::InvalidArgument => "see `--help` of the command for the ranges",
        ErrorReason::PayloadTooLarge => {
            "send less, or raise the limit: `rdq queue put QUEUE --set limits.max_payload_bytes=N`"
        }
        ErrorReason::Unsupported => "this server's backend cannot do it",
        ErrorReason::StorageUnavailable => {
            "the server lost its storage; it comes back by itself once the storage does"
        }
        ErrorReason::Closed => "the server is shutting down; try again",
        ErrorReason::StorageFull => "free or add space where the server stores its data",
        ErrorReason::MessageTooLarge => "send less at once",
        ErrorReason::Internal => "look up the correlation_id in the server's log",
        ErrorReason::Unauthenticated => "the server wants credentials",
        ErrorReason::PermissionDenied => "ask for the grant that this needs",
        ErrorReason::DeadlineExceeded => {
            "raise --timeout; where the outcome is unknown, look before you repeat"
        }
        ErrorReason::Unspecified => "",
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Malformed(message) => f.write_str(message),
            Self::Unreachable { server, .. } => write!(f, "cannot reach a server at {server}"),
            Self::Status(status) => f.write_str(status.message()),
            Self::Cut(what) => write!(f, "{what} ended before it was done"),
            Self::Io(error) => error.fmt(f),
            // It tells its causes itself.
            Self::Serve(error) => error.fmt(f),
        }
    }
}

impl Error for CliError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => source.source(),
            _ => None,
        }
    }
}

impl From<Status> for CliError {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    fn status(code: Code, reason: &str) -> CliError {
        let metadata = [("task_id".to_owned(), "a".to_owned())];
        let details = ErrorDetails::with_error_info(reason, "rdq", metadata);
        Status::with_error_details(code, "the claim is stale", details).into()
    }

    #[test]
    fn every_kind_of_end_has_its_exit_code() {
        let pipe = io::Error::from(io::ErrorKind::BrokenPipe);
        for (result, code) in [
            (Ok(Outcome::Done), 0),
            (Ok(Outcome::Refused), 1),
            (Ok(Outcome::Nothing), 4),
            (Err(CliError::Usage("no".into())), 2),
            (Err(CliError::Cut("the stream")), 3),
            (Err(CliError::Io(pipe)), 0),
            (Err(CliError::Io(io::Error::other("disk"))), 1),
            (Err(status(Code::NotFound, "NOT_FOUND")), 1),
            (Err(status(Code::Unavailable, "STORAGE_UNAVAILABLE")), 3),
        ] {
            assert_eq!(exit_code(&result), code, "{result:?}");
        }
    }

    #[test]
    fn a_refusal_tells_reason_metadata_and_what_to_do() {
        let error = status(Code::FailedPrecondition, "STALE_CLAIM");
        assert_eq!(
            Report(&error).to_string(),
            "error: STALE_CLAIM: the claim is stale\n  task_id: a\n  what to do: drop the work: the \
             task has ended, or belongs to a newer claim (`rdq get ID` tells)\n"
        );
        let json = as_json(&error);
        assert_eq!(json["error"]["reason"], "STALE_CLAIM");
        assert_eq!(json["error"]["metadata"]["task_id"], "a");
    }

    #[test]
    fn a_status_without_details_is_named_by_its_code() {
        let error = CliError::from(Status::unimplemented("no such method"));
        assert_eq!(reason_of(&error), "UNIMPLEMENTED");
    }
}
