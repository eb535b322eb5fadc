//! The compliance kit on a real MongoDB server, a replica set of one.

mod namespace;

use namespace::Namespace;
use rdq_compliance::Fixture;
use rdq_mongodb::{MongoOptions, MongoStorage};
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::mongodb::{self, MongoServer};
use std::sync::Arc;

/// A database of its own on a server that all cases share. Each handle is one more server on it.
struct MongoFixture(Namespace);

impl Fixture for MongoFixture {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: false,
        filter_pushdown: false,
        batch_enqueue: true,
    };
    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        Self(Namespace::new(MongoServer::shared().await.expect("a MongoDB server")))
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let options = MongoOptions::from_url(&self.0.url()).expect("a URL");
        Arc::new(MongoStorage::open(options).await.expect("the database opens"))
    }
}

fn main() {
    rdq_compliance::main_unless::<MongoFixture>(mongodb::missing());
}
