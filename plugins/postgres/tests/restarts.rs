//! The kit's cases about restarts, on a server of each case's own that is killed in between: what
//! was acknowledged is there, and the counters go on.

mod schema;

use rdq_compliance::{Fixture, check_unless};
use rdq_postgres::{PostgresOptions, PostgresStorage};
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::postgres::{self, PostgresServer};
use schema::Schema;
use std::sync::Arc;
use tokio::sync::Mutex;

struct OwnServer {
    server: Mutex<PostgresServer>,
    schema: Schema,
}

impl Fixture for OwnServer {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: true,
        filter_pushdown: true,
        batch_enqueue: true,
    };
    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        let server = PostgresServer::start().await.expect("a PostgreSQL server");
        let schema = Schema::new(&server);
        Self { server: Mutex::new(server), schema }
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let options = PostgresOptions::from_url(&self.schema.url()).expect("a URL");
        Arc::new(PostgresStorage::open(options).await.expect("the schema opens"))
    }

    async fn restart(&self) {
        let mut server = self.server.lock().await;
        let local = server.local().expect("a server of our own");
        // Its children end by themselves, and hold its memory until then: what a crash leaves.
        local.kill();
        local.start_again().expect("the server starts again");
    }
}

fn main() {
    let arguments = std::env::args().skip(1).chain(["durable::".to_owned()]);
    let summary = check_unless::<OwnServer>(postgres::missing_locally(), arguments);
    let nothing_ran = summary.passed + summary.ignored == 0;
    std::process::exit(if summary.failed > 0 || nothing_ran { 101 } else { 0 });
}
