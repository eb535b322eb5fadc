//! The compliance kit on a SQLite file.

use rdq_compliance::Fixture;
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_sqlite::{SqliteOptions, SqliteStorage};
use std::sync::Arc;

/// A file in a directory of its own. Each handle has its own writer, as another process would.
struct SqliteFixture(tempfile::TempDir);

impl Fixture for SqliteFixture {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: true,
        filter_pushdown: true,
        batch_enqueue: true,
    };

    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let path = self.0.path().join("rdq.db");
        let storage = SqliteStorage::open(&path, SqliteOptions::default()).await;
        Arc::new(storage.expect("the file opens"))
    }
}

fn main() {
    rdq_compliance::main::<SqliteFixture>();
}
