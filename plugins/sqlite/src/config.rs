//! What there is to configure, and why a file cannot be opened.

use std::path::{Path, PathBuf};

/// The path in a storage URL `sqlite:PATH`; `None` if it is another URL. The rest is the path as it
/// stands: no query string, no escapes.
pub fn path_of_url(url: &str) -> Option<&Path> {
    url.strip_prefix("sqlite:").map(Path::new)
}

/// How a store is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// Connections for reads beside the writer; at least 1.
    pub readers: usize,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 3 }
    }
}

/// Why a file cannot be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its directory is missing or cannot be entered, or it is a directory itself.
    #[error("{path:?} is not a path where a database can be")]
    Path {
        /// What was asked for.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The SQLite library is too old to be safe.
    #[error("SQLite {version} can corrupt a database; 3.51.3 is needed")]
    Library {
        /// The linked version.
        version: &'static str,
    },
    /// A setting that durability rests on was not accepted.
    #[error("the database does not accept {pragma} = {value}")]
    Pragma {
        /// Which.
        pragma: &'static str,
        /// The value.
        value: String,
    },
    /// The file belongs to another application.
    #[error("the file is a database of another application")]
    Foreign,
    /// A newer rdq has written the file.
    #[error(
        "the database has schema version {found}, and this rdq knows up to {known}: a newer rdq has \
         used it; use one that is as new"
    )]
    NewerSchema {
        /// The file's version.
        found: i64,
        /// The newest version known here.
        known: u32,
    },
    /// No rdq has used the file, or an older one: only opening it as a store prepares it.
    #[error(
        "the database has schema version {found}, and {known} is needed: open it as a store first"
    )]
    OlderSchema {
        /// The file's version.
        found: u32,
        /// The version that is needed.
        known: u32,
    },
    /// The connection is not inside a transaction, so that there is none to join.
    #[error("the connection is not inside a transaction")]
    NoTransaction,
    /// SQLite refused.
    #[error("the database cannot be opened")]
    Sqlite(#[from] rusqlite::Error),
    /// A thread could not be started.
    #[error("a thread for the database cannot be started")]
    Thread(#[source] std::io::Error),
}
