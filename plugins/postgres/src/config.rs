//! What there is to configure, and why a database cannot be used. Nothing here shows a password.

use sqlx::postgres::PgConnectOptions;
use std::{fmt, str::FromStr};

/// Where tasks are kept: a schema of the database.
pub const DEFAULT_NAMESPACE: &str = "rdq";

/// The longest name that PostgreSQL does not cut.
const NAMESPACE_BYTES_MAX: usize = 63;

/// How a store is opened.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where the database is, and as whom it is used.
    pub connect: PgConnectOptions,
    /// The schema; made if it is missing.
    pub namespace: String,
    /// Connections of this handle beside the one that listens and, half as many at most, those of open
    /// interactive transactions; at least 2.
    pub max_connections: u32,
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connect, namespace, max_connections } = self;
        f.debug_struct("PostgresOptions")
            .field("host", &connect.get_host())
            .field("port", &connect.get_port())
            .field("database", &connect.get_database())
            .field("namespace", namespace)
            .field("max_connections", max_connections)
            .finish_non_exhaustive()
    }
}

impl PostgresOptions {
    /// From `postgres://USER:PASSWORD@HOST:PORT/DATABASE?namespace=SCHEMA`. Other parameters are
    /// those of `libpq`.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut namespace = DEFAULT_NAMESPACE;
        let mut others = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("namespace", value)) => namespace = value,
                _ => others.push(parameter),
            }
        }
        check_namespace(namespace)?;
        let rest =
            if others.is_empty() { base.into() } else { format!("{base}?{}", others.join("&")) };
        // The error may show the URL, and with it the password.
        let connect = PgConnectOptions::from_str(&rest).map_err(|_| OpenError::Url)?;
        Ok(Self { connect, namespace: namespace.to_owned(), max_connections: 10 })
    }
}

pub(crate) fn check_namespace(namespace: &str) -> Result<(), OpenError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_name = (1..=NAMESPACE_BYTES_MAX).contains(&namespace.len())
        && namespace.starts_with(|c: char| c.is_ascii_lowercase())
        && namespace.chars().all(is_plain)
        && !namespace.starts_with("pg_");
    if is_name { Ok(()) } else { Err(OpenError::Namespace { namespace: namespace.to_owned() }) }
}

/// Why a database cannot be used as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL cannot be read.
    #[error("the URL is not `postgres://USER:PASSWORD@HOST:PORT/DATABASE`")]
    Url,
    /// The namespace is not a plain name.
    #[error(
        "namespace {namespace:?} is not a plain name: lower-case letters, digits and `_`, at most \
         63, beginning with a letter and not with `pg_`"
    )]
    Namespace {
        /// What was asked for.
        namespace: String,
    },
    /// The server is too old.
    #[error("PostgreSQL {found} is too old; 14 is needed")]
    Version {
        /// What it says it is.
        found: String,
    },
    /// The server would lose what it acknowledged, or cannot take anything.
    #[error("the server has {setting} = {value}, and {needed} is needed")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What it is.
        value: String,
        /// What it has to be.
        needed: &'static str,
    },
    /// Between here and the database is a pooler that gives each transaction another session.
    #[error(
        "there is a connection pooler in transaction mode before the database ({evidence}): use \
         session mode, or the database's own address"
    )]
    Pooler {
        /// How it was noticed.
        evidence: &'static str,
    },
    /// The schema belongs to another application.
    #[error("schema {namespace} is there, and is not one of rdq")]
    Foreign {
        /// Which.
        namespace: String,
    },
    /// A newer rdq has written the schema.
    #[error(
        "the schema has version {found}, and this rdq knows up to {known}: a newer rdq has used it; \
         use one that is as new"
    )]
    NewerSchema {
        /// The schema's version.
        found: i32,
        /// The newest version known here.
        known: u32,
    },
    /// The database refused, or cannot be reached.
    #[error("the database cannot be used")]
    Sql(#[source] sqlx::Error),
}

impl From<sqlx::Error> for OpenError {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        match code.as_deref() {
            // A prepared statement that this session made is gone, or one is there that it did not
            // make: before anything else, two of our sessions met in one of the server's.
            Some("26000" | "42P05") => {
                Self::Pooler { evidence: "prepared statements are another session's" }
            }
            _ => Self::Sql(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_taken_out_of_the_url_and_the_rest_is_the_drivers() {
        let url = "postgres://me:secret@db.example:6000/tasks?sslmode=disable&namespace=other";
        let options = PostgresOptions::from_url(url).unwrap();
        assert_eq!(options.namespace, "other");
        assert_eq!(options.connect.get_host(), "db.example");
        assert_eq!(options.connect.get_port(), 6000);
        assert_eq!(options.connect.get_database(), Some("tasks"));
        assert!(!format!("{options:?}").contains("secret"));
        assert_eq!(PostgresOptions::from_url("postgres://db").unwrap().namespace, "rdq");
    }

    #[test]
    fn what_is_no_plain_name_is_no_namespace() {
        let long = "a".repeat(64);
        for bad in ["", "Rdq", "1a", "a-b", "a\"b", "pg_temp", "é", &long] {
            let url = format!("postgres://db?namespace={bad}");
            let error = PostgresOptions::from_url(&url).unwrap_err();
            assert!(matches!(error, OpenError::Namespace { .. }), "{bad}: {error:?}");
        }
    }

    #[test]
    fn a_url_that_cannot_be_read_is_not_repeated() {
        let error = PostgresOptions::from_url("postgres://me:secret@db:port/x").unwrap_err();
        assert!(matches!(error, OpenError::Url) && !error.to_string().contains("secret"));
    }
}
