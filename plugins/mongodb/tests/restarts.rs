//! The kit's cases about restarts, on a server of each case's own that is killed in between: what
//! was acknowledged is there, and the counters go on.

mod namespace;

use namespace::Namespace;
use rdq_compliance::{Fixture, check_unless};
use rdq_mongodb::{MongoOptions, MongoStorage};
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::mongodb::{self, MongoServer};
use std::sync::Arc;
use tokio::sync::Mutex;

struct OwnServer {
    server: Mutex<MongoServer>,
    namespace: Namespace,
}

impl Fixture for OwnServer {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: false,
        filter_pushdown: false,
        batch_enqueue: true,
    };
    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        let server = MongoServer::start().await.expect("a MongoDB server");
        let namespace = Namespace::new(&server);
        Self { server: Mutex::new(server), namespace }
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let options = MongoOptions::from_url(&self.namespace.url()).expect("a URL");
        Arc::new(MongoStorage::open(options).await.expect("the database opens"))
    }

    async fn restart(&self) {
        let mut server = self.server.lock().await;
        let local = server.local().expect("a server of our own");
        local.kill();
        local.start_again().expect("the server starts again");
    }
}

fn main() {
    let arguments = std::env::args().skip(1).chain(["durable::".to_owned()]);
    let summary = check_unless::<OwnServer>(mongodb::missing_locally(), arguments);
    let nothing_ran = summary.passed + summary.ignored == 0;
    std::process::exit(if summary.failed > 0 || nothing_ran { 101 } else { 0 });
}
