//! The compliance kit on a mongod that is in no replica set: it serves by polling.

mod namespace;

use namespace::Namespace;
use rdq_compliance::Fixture;
use rdq_mongodb::{MongoOptions, MongoStorage};
use rdq_spi::{Capabilities, Durability, Storage};
use rdq_test_servers::mongodb::{self, MongoServer};
use std::sync::Arc;
use tokio::sync::OnceCell;

static SERVER: OnceCell<MongoServer> = OnceCell::const_new();

struct Standalone(Namespace);

impl Fixture for Standalone {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: false,
        filter_pushdown: false,
        batch_enqueue: true,
    };

    async fn create() -> Self {
        let server = SERVER.get_or_try_init(MongoServer::start_standalone).await;
        Self(Namespace::new(server.expect("a MongoDB server")))
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let options = MongoOptions::from_url(&self.0.url()).expect("a URL");
        Arc::new(MongoStorage::open(options).await.expect("the database opens"))
    }
}

fn main() {
    if let Some(reason) = mongodb::missing_locally() {
        println!("all ignored: {reason}");
        return;
    }
    rdq_compliance::main::<Standalone>();
}
