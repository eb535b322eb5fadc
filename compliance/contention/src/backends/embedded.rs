//! What runs in the process: SQLite and memory, for comparison. Their limits are measured by
//! `compliance/benches/limits`.

use super::{Backend, Started};
use async_trait::async_trait;
use tempfile::TempDir;

struct Embedded {
    name: &'static str,
    dir: Option<TempDir>,
}

/// Which of the two.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Sqlite,
    Memory,
}

/// A file in a temporary folder, or nothing that lasts.
pub(super) fn start(kind: Kind) -> Started {
    let (name, dir) = match kind {
        Kind::Sqlite => ("SQLite", Some(tempfile::tempdir()?)),
        Kind::Memory => ("memory", None),
    };
    Ok(Ok(Box::new(Embedded { name, dir })))
}

#[async_trait]
impl Backend for Embedded {
    fn name(&self) -> &'static str {
        self.name
    }

    fn url(&self, store: &str) -> String {
        match &self.dir {
            Some(dir) => format!("sqlite:{}/{store}.db", dir.path().display()),
            None => "memory:".into(),
        }
    }

    fn supply(&self) -> u64 {
        200_000
    }

    fn is_shared(&self) -> bool {
        false
    }
}
