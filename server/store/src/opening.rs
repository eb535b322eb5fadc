//! Opens the storage that a URL names: the one place that knows every plugin by its name.

use rdq_spi::{Migrated, Storage, StorageError};
use std::sync::Arc;

/// Why a storage could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no storage of this build.
    #[error(
        "`{url}` names no storage; use `sqlite:PATH`, `postgres://…`, `redis://…`, `mongodb://…`, \
         `memory:` or `http://HOST:PORT` of another rdq"
    )]
    UnknownUrl {
        /// The URL, without secrets.
        url: String,
    },
    /// The URL names a storage that this build was made without.
    #[error("this build of rdq has no {storage}; build it with its default features")]
    NotBuilt {
        /// Which.
        storage: &'static str,
    },
    /// The URL names a storage that has no schema of its own.
    #[error("`{url}` has no schema to prepare: {instead}")]
    NoSchema {
        /// The URL, without secrets.
        url: String,
        /// What to do.
        instead: &'static str,
    },
    /// The SQLite file could not be opened.
    #[cfg(feature = "sqlite")]
    #[error("{}", chain(.0))]
    Sqlite(#[from] rdq_sqlite::OpenError),
    /// The PostgreSQL database could not be used.
    #[cfg(feature = "postgres")]
    #[error("{}", chain(.0))]
    Postgres(#[from] rdq_postgres::OpenError),
    /// The Redis server could not be used.
    #[cfg(feature = "redis")]
    #[error("{}", chain(.0))]
    Redis(#[from] rdq_redis::OpenError),
    /// The MongoDB database could not be used.
    #[cfg(feature = "mongodb")]
    #[error("{}", chain(.0))]
    Mongo(#[from] rdq_mongodb::OpenError),
    /// The other server could not be used.
    #[error("{}", chain(.0))]
    Storage(#[from] StorageError),
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Opens the storage that the URL names.
pub async fn open(url: &str) -> Result<Arc<dyn Storage>, OpenError> {
    match url.split_once(':') {
        #[cfg(feature = "memory")]
        Some(("memory", "")) => Ok(Arc::new(rdq_memory::MemoryStorage::new())),
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if !path.is_empty() => {
            let options = rdq_sqlite::SqliteOptions::default();
            Ok(Arc::new(rdq_sqlite::SqliteStorage::open(path.as_ref(), options).await?))
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let options = rdq_postgres::PostgresOptions::from_url(url)?;
            Ok(Arc::new(rdq_postgres::PostgresStorage::open(options).await?))
        }
        #[cfg(feature = "redis")]
        Some(("redis", _)) => {
            let config = rdq_redis::RedisConfig::from_url(url)?;
            Ok(Arc::new(rdq_redis::RedisStorage::connect(config).await?))
        }
        #[cfg(feature = "mongodb")]
        Some(("mongodb", _)) => {
            let options = rdq_mongodb::MongoOptions::from_url(url)?;
            Ok(Arc::new(rdq_mongodb::MongoStorage::open(options).await?))
        }
        #[cfg(feature = "remote")]
        Some(("http" | "https", _)) => Ok(Arc::new(rdq_remote::RemoteStorage::connect(url).await?)),
        _ => Err(not_here(url)),
    }
}

/// Makes the schema of the storage that the URL names, or brings it to the newest version. Safe
/// beside servers that run, and with many of these at once.
pub async fn migrate(url: &str) -> Result<Migrated, OpenError> {
    let no_schema = |instead| OpenError::NoSchema { url: redact(url), instead };
    match url.split_once(':') {
        #[cfg(feature = "sqlite")]
        Some(("sqlite", path)) if !path.is_empty() => {
            Ok(rdq_sqlite::SqliteStorage::migrate(path.as_ref()).await?)
        }
        #[cfg(feature = "postgres")]
        Some(("postgres" | "postgresql", _)) => {
            let options = rdq_postgres::PostgresOptions::from_url(url)?;
            Ok(rdq_postgres::PostgresStorage::migrate(options).await?)
        }
        #[cfg(feature = "redis")]
        Some(("redis", _)) => {
            let config = rdq_redis::RedisConfig::from_url(url)?;
            Ok(rdq_redis::RedisStorage::migrate(config).await?)
        }
        #[cfg(feature = "mongodb")]
        Some(("mongodb", _)) => {
            let options = rdq_mongodb::MongoOptions::from_url(url)?;
            Ok(rdq_mongodb::MongoStorage::migrate(options).await?)
        }
        Some(("memory", "")) => Err(no_schema("it begins empty with every server")),
        Some(("http" | "https", _)) => Err(no_schema("name the database of that server")),
        _ => Err(not_here(url)),
    }
}

/// Why no storage of this build takes the URL.
fn not_here(url: &str) -> OpenError {
    match url.split_once(':') {
        // A build that has them took it before.
        Some(("postgres" | "postgresql", _)) => OpenError::NotBuilt { storage: "PostgreSQL" },
        Some(("redis", _)) => OpenError::NotBuilt { storage: "Redis" },
        Some(("mongodb", _)) => OpenError::NotBuilt { storage: "MongoDB" },
        _ => OpenError::UnknownUrl { url: redact(url) },
    }
}

/// The URL without the part that may hold credentials.
pub fn redact(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            match authority.rsplit_once('@') {
                Some((_, host)) => format!("{scheme}://…@{host}{path}"),
                None => url.to_owned(),
            }
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_shown() {
        assert_eq!(redact("postgres://user:secret@host:5/db"), "postgres://…@host:5/db");
        assert_eq!(redact("sqlite:rdq.db"), "sqlite:rdq.db");
        assert_eq!(redact("http://host:1"), "http://host:1");
    }

    #[tokio::test]
    async fn a_database_that_is_not_there_is_an_error_without_its_password() {
        for url in [
            "postgres://me:secret@127.0.0.1:1/db",
            "postgres://me:secret@127.0.0.1:x/db",
            "mongodb://me:secret@127.0.0.1:1/db",
            "mongodb://me:secret@127.0.0.1:x/db",
        ] {
            let error = open(url).await.unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn what_has_no_schema_says_what_to_do_instead() {
        for (url, expected) in [
            ("memory:", "it begins empty with every server"),
            ("http://user:secret@host:1", "name the database of that server"),
            ("ftp://user:secret@host", "names no storage"),
        ] {
            let error = migrate(url).await.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_url_without_a_storage_says_which_there_are() {
        for url in ["", "rdq.db", "sqlite:", "memory:x", "ftp://user:secret@host"] {
            let error = open(url).await.unwrap_err().to_string();
            assert!(error.contains("sqlite:PATH") && !error.contains("secret"), "{error}");
        }
    }
}
