//! What there is to configure, and why a database cannot be used. Nothing here shows a password.

use std::fmt;

/// Where tasks are kept: a database of the server.
pub const DEFAULT_NAMESPACE: &str = "rdq";

/// The longest name of a database, less than MongoDB's own limit of 64 bytes.
const NAMESPACE_BYTES_MAX: usize = 63;

/// How a store is opened.
#[derive(Clone)]
pub struct MongoOptions {
    /// The URL for the driver.
    pub(crate) url: String,
    /// The database.
    pub(crate) namespace: String,
}

impl fmt::Debug for MongoOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MongoOptions").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl MongoOptions {
    /// From `mongodb://USER:PASSWORD@HOST:PORT/DATABASE?namespace=NAME`. The namespace is the
    /// database that tasks are kept in; without it that is the one of the path, else `rdq`. Other
    /// parameters are those of every driver, `replicaSet` and `authSource` among them.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let after_scheme = base.strip_prefix("mongodb://").ok_or(OpenError::Url)?;
        let path = after_scheme.split_once('/').map_or("", |(_, path)| path);
        let mut namespace = if path.is_empty() { DEFAULT_NAMESPACE } else { path };
        let mut others = Vec::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("namespace", value)) => namespace = value,
                _ => others.push(parameter),
            }
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_name = (1..=NAMESPACE_BYTES_MAX).contains(&namespace.len())
            && namespace.chars().all(is_plain)
            && !["admin", "config", "local"].contains(&namespace);
        if !is_name {
            return Err(OpenError::Namespace { namespace: namespace.to_owned() });
        }
        let slash = if after_scheme.contains('/') { "" } else { "/" };
        let url = if others.is_empty() {
            base.to_owned()
        } else {
            format!("{base}{slash}?{}", others.join("&"))
        };
        Ok(Self { url, namespace: namespace.to_owned() })
    }
}

/// Why a database cannot be used as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL cannot be read.
    #[error("the URL is not `mongodb://USER:PASSWORD@HOST:PORT/DATABASE`")]
    Url,
    /// The namespace is not a plain name.
    #[error(
        "namespace {namespace:?} is not a plain name of a database: letters, digits, `_` and `-`, \
         at most 63, and none of MongoDB's own"
    )]
    Namespace {
        /// What was asked for.
        namespace: String,
    },
    /// The server is too old.
    #[error("MongoDB {found} is too old; 5.0 is needed")]
    Version {
        /// What it says it is.
        found: String,
    },
    /// A router of a sharded cluster.
    #[error("the address is a router of a sharded cluster: use one of its replica sets")]
    Sharded,
    /// A newer rdq has written the database.
    #[error("the database has schema version {found}, and this rdq knows up to {known}")]
    NewerSchema {
        /// The database's version.
        found: i32,
        /// The newest version known here.
        known: i32,
    },
    /// The database refused, or cannot be reached.
    #[error("the database cannot be used")]
    Driver(#[from] mongodb::error::Error),
    /// What is stored is not what rdq stores.
    #[error("{what} is damaged")]
    Corrupt {
        /// Which.
        what: &'static str,
    },
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_is_taken_out_of_the_url_and_the_rest_is_the_drivers() {
        for (url, namespace, rest) in [
            ("mongodb://h", "rdq", "mongodb://h"),
            ("mongodb://h/tasks", "tasks", "mongodb://h/tasks"),
            ("mongodb://h?replicaSet=a", "rdq", "mongodb://h/?replicaSet=a"),
            ("mongodb://u:p@h:1/db?w=1&namespace=x", "x", "mongodb://u:p@h:1/db?w=1"),
        ] {
            let options = MongoOptions::from_url(url).unwrap();
            assert_eq!((options.namespace.as_str(), options.url.as_str()), (namespace, rest));
            assert!(!format!("{options:?}").contains("u:p"));
        }
    }

    #[test]
    fn what_is_no_plain_name_is_no_namespace() {
        let long = "a".repeat(64);
        for bad in ["", "a.b", "a b", "a$b", "é", "admin", &long] {
            let error =
                MongoOptions::from_url(&format!("mongodb://h?namespace={bad}")).unwrap_err();
            assert!(matches!(error, OpenError::Namespace { .. }), "{bad}: {error:?}");
        }
        assert!(matches!(MongoOptions::from_url("http://h"), Err(OpenError::Url)));
    }
}
