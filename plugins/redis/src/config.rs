//! What there is to configure, and why a storage cannot be opened.

use rdq_spi::StorageError;
use redis::{ConnectionInfo, IntoConnectionInfo as _, RedisError};
use std::fmt;

const NAMESPACE_DEFAULT: &str = "rdq";
const NAMESPACE_BYTES_MAX: usize = 100;

/// Where the storage is: `redis://[USER:PASSWORD@]HOST[:PORT][/DB][?namespace=NAME]`.
#[derive(Clone)]
pub struct RedisConfig {
    pub(crate) address: ConnectionInfo,
    pub(crate) namespace: String,
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may hold a password.
        f.debug_struct("RedisConfig").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// Reads a storage URL.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut namespace = NAMESPACE_DEFAULT;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("namespace", name)) => namespace = name,
                Some((setting, _)) => return Err(OpenError::Setting(setting.to_owned())),
                None => return Err(OpenError::Setting(pair.to_owned())),
            }
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_good = (1..=NAMESPACE_BYTES_MAX).contains(&namespace.len());
        if !is_good || !namespace.chars().all(is_plain) {
            return Err(OpenError::Namespace(namespace.to_owned()));
        }
        let address = address.into_connection_info().map_err(OpenError::Address)?;
        Ok(Self { address, namespace: namespace.to_owned() })
    }
}

/// Why a storage cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL names no server.
    #[error("not an address of a Redis server")]
    Address(#[source] RedisError),
    /// The URL has a setting that is none.
    #[error("`{0}` is no setting of a redis:// URL; `namespace` is one")]
    Setting(String),
    /// The namespace is not one.
    #[error(
        "the namespace `{0}` is not 1 to {NAMESPACE_BYTES_MAX} letters, digits, `-`, `_` and `.`"
    )]
    Namespace(String),
    /// The server does not answer, or refuses.
    #[error("the Redis server cannot be used")]
    Server(#[source] RedisError),
    /// The layout could not be stored.
    #[error("the data cannot be written")]
    Write(#[source] StorageError),
    /// No connection in time.
    #[error("the Redis server does not answer")]
    NoAnswer,
    /// The server has no functions.
    #[error("the server has version {0}; Redis 7.0 or Valkey 7.2 is needed")]
    Version(String),
    /// The server would throw tasks away when its memory is full.
    #[error(
        "the server's maxmemory-policy is `{0}`, which throws tasks away when memory is full; set \
         `maxmemory-policy noeviction`"
    )]
    Evicts(String),
    /// Writes would be refused.
    #[error("the server is a replica; use its primary's address")]
    Replica,
    /// A newer rdq wrote the data.
    #[error(
        "the data has layout {found}, and this rdq knows up to {known}: a newer rdq has used it; use \
         one that is as new"
    )]
    NewerSchema {
        /// Of the data.
        found: u8,
        /// Of this build.
        known: u8,
    },
    /// A build from before the first release wrote the data.
    #[error(
        "the data has layout {found}, which no release wrote, and this rdq reads layout {known}: \
         choose another `namespace`, or let the rdq that wrote it finish the work and delete the \
         keys `{keys}`"
    )]
    OlderSchema {
        /// Of the data.
        found: u8,
        /// Of this build.
        known: u8,
        /// What the store's keys are like.
        keys: String,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_server_and_namespace() {
        let config = RedisConfig::from_url("redis://u:secret@host:1/2?namespace=a-b").unwrap();
        assert_eq!(config.namespace, "a-b");
        assert!(!format!("{config:?}").contains("secret"));
        assert_eq!(RedisConfig::from_url("redis://host").unwrap().namespace, "rdq");
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_its_password() {
        for (url, expected) in [
            ("redis://:secret@host?namspace=a", "`namspace` is no setting"),
            ("redis://:secret@host?namespace=a}b", "the namespace `a}b` is not"),
            ("redis://:secret@host?namespace=", "the namespace `` is not"),
            ("redis://:secret@host:notaport", "not an address"),
        ] {
            let error = RedisConfig::from_url(url).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("secret"), "{error}");
        }
    }
}
