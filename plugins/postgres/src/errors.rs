//! PostgreSQL's errors as storage errors: decides what was contention, full, unreachable, unknown or
//! a bug. It logs nothing and answers nobody.

use rdq_spi::StorageError;
use sqlx::{
    error::DatabaseError,
    postgres::{PgDatabaseError, PgSeverity},
};
use std::{error::Error, io};

/// The result of a statement.
pub(crate) type Sql<T> = Result<T, sqlx::Error>;

/// Whether a call changes anything: what a lost answer leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    class: Class,
    breaks_connection: bool,
    cause: Box<dyn Error + Send + Sync>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// It lost against another transaction, and may win the next time.
    Lost,
    Contention,
    Full,
    Refused,
    Unavailable,
    OutcomeUnknown,
    Closed,
    Internal,
}

impl Failure {
    /// Of getting a connection: nothing was asked of the database.
    pub(crate) fn of_connecting(error: sqlx::Error) -> Self {
        let class = match error {
            sqlx::Error::PoolClosed => Class::Closed,
            // Whatever it is, a wrong password too: the database cannot be used, and may be later.
            _ => Class::Unavailable,
        };
        Self { class, breaks_connection: false, cause: error.into() }
    }

    /// Of a statement, which commits by itself.
    pub(crate) fn of_statement(error: sqlx::Error, access: Access) -> Self {
        let (class, breaks_connection) = classify(&error, access);
        Self { class, breaks_connection, cause: error.into() }
    }

    /// No answer came.
    pub(crate) fn timed_out(access: Access) -> Self {
        let cause = io::Error::new(io::ErrorKind::TimedOut, "the database did not answer").into();
        Self { class: unanswered(access), breaks_connection: true, cause }
    }

    /// Whether the connection should not be used any more.
    pub(crate) fn breaks_connection(&self) -> bool {
        self.breaks_connection
    }

    /// Whether what was asked may have been done.
    pub(crate) fn is_unknown(&self) -> bool {
        self.class == Class::OutcomeUnknown
    }

    /// Whether it was rolled back for what others did, and may be tried again.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.class == Class::Lost
    }

    /// The failure as the answer to a call.
    pub(crate) fn answer(self, operation: &'static str) -> StorageError {
        let source = self.cause;
        match self.class {
            Class::Lost | Class::Contention => StorageError::Contention { operation },
            Class::Full => StorageError::Full { source },
            Class::Refused => StorageError::Refused { operation, message: source.to_string() },
            Class::Unavailable => StorageError::Unavailable { operation, source },
            Class::OutcomeUnknown => StorageError::OutcomeUnknown { operation, source },
            Class::Closed => StorageError::Closed,
            Class::Internal => StorageError::Internal { operation, source },
        }
    }
}

fn unanswered(access: Access) -> Class {
    match access {
        Access::Read => Class::Unavailable,
        // The commit may have been made, and only its answer lost.
        Access::Write => Class::OutcomeUnknown,
    }
}

fn classify(error: &sqlx::Error, access: Access) -> (Class, bool) {
    match error {
        // A session, or the whole server, that ended of it: perhaps after the commit.
        sqlx::Error::Database(error) if ends_session(error.as_ref()) => (unanswered(access), true),
        sqlx::Error::Database(error) => match error.code() {
            Some(code) => of_code(&code, access),
            None => (Class::Internal, false),
        },
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => (unanswered(access), true),
        sqlx::Error::PoolClosed => (Class::Closed, false),
        sqlx::Error::PoolTimedOut => (Class::Unavailable, false),
        _ => (Class::Internal, false),
    }
}

fn ends_session(error: &dyn DatabaseError) -> bool {
    let error = error.try_downcast_ref::<PgDatabaseError>();
    error.is_some_and(|it| matches!(it.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}

/// By SQLSTATE. A server that says why it failed has rolled back, unless it was ended meanwhile.
fn of_code(code: &str, access: Access) -> (Class, bool) {
    match code {
        // Serialisation failure, deadlock.
        "40001" | "40P01" => (Class::Lost, false),
        // A plan that a migration made stale; a new connection has none.
        "0A000" | "26000" => (Class::Lost, true),
        // A lock not had in time.
        "55P03" => (Class::Contention, false),
        "53100" => (Class::Full, false),
        // Text that is not of the encoding; more than the database holds in one value.
        "22021" | "22P05" | "54000" => (Class::Refused, false),
        // The statement took too long.
        "57014" => (Class::Unavailable, false),
        // The server was made read-only, or has become a standby: a new connection finds the primary.
        "25006" => (Class::Unavailable, true),
        _ => match &code[..code.len().min(2)] {
            // The connection is ended, by whatever end.
            "08" | "57" => (unanswered(access), true),
            // Out of something; an error of the system below.
            "53" | "58" => (Class::Unavailable, false),
            _ => (Class::Internal, false),
        },
    }
}

/// A stored value that this version cannot read.
pub(crate) fn corrupt(what: &'static str) -> sqlx::Error {
    #[derive(Debug, thiserror::Error)]
    #[error("the stored {0} cannot be read")]
    struct Corrupt(&'static str);
    sqlx::Error::Decode(Box::new(Corrupt(what)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_leads_to_one_decision() {
        use Access::{Read, Write};
        use Class as C;
        for (code, access, class, breaks_connection) in [
            ("40001", Write, C::Lost, false),
            ("40P01", Write, C::Lost, false),
            ("55P03", Write, C::Contention, false),
            ("53100", Write, C::Full, false),
            ("53300", Write, C::Unavailable, false),
            ("57014", Write, C::Unavailable, false),
            ("57P01", Write, C::OutcomeUnknown, true),
            ("57P01", Read, C::Unavailable, true),
            ("08006", Write, C::OutcomeUnknown, true),
            ("25006", Write, C::Unavailable, true),
            ("58030", Write, C::Unavailable, false),
            ("22021", Write, C::Refused, false),
            ("23505", Write, C::Internal, false),
            ("XX001", Read, C::Internal, false),
        ] {
            assert_eq!(of_code(code, access), (class, breaks_connection), "{code} of a {access:?}");
        }
    }

    #[test]
    fn an_answer_that_did_not_come_leaves_a_write_open_and_a_read_not() {
        let lost = || sqlx::Error::Io(io::ErrorKind::ConnectionReset.into());
        let write = Failure::of_statement(lost(), Access::Write);
        assert!(write.breaks_connection());
        assert!(matches!(write.answer("resolve"), StorageError::OutcomeUnknown { .. }));
        let read = Failure::of_statement(lost(), Access::Read).answer("get");
        assert!(matches!(read, StorageError::Unavailable { .. }));
        let connecting = Failure::of_connecting(lost()).answer("resolve");
        assert!(matches!(connecting, StorageError::Unavailable { .. }));
    }
}
