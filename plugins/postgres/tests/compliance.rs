//! The compliance kit on a real PostgreSQL server.

mod schema;

use rdq_compliance::Fixture;
use rdq_postgres::{PostgresOptions, PostgresStorage};
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::postgres::{self, PostgresServer};
use schema::Schema;
use std::sync::Arc;

/// A schema of its own on a server that all cases share. Each handle is one more server on it.
struct PostgresFixture(Schema);

impl Fixture for PostgresFixture {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: true,
        filter_pushdown: true,
        batch_enqueue: true,
    };
    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        Self(Schema::new(PostgresServer::shared().await.expect("a PostgreSQL server")))
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let options = PostgresOptions::from_url(&self.0.url()).expect("a URL");
        Arc::new(PostgresStorage::open(options).await.expect("the schema opens"))
    }
}

fn main() {
    rdq_compliance::main_unless::<PostgresFixture>(postgres::missing());
}
