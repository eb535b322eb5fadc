//! The kit's cases through the functions of the schema, as an application calls them that shares the
//! tables with servers: of each case's handles the first is such an application, and the next is a
//! server. SCHEMA.md is what the application knows.

#[path = "sql/application.rs"]
mod application;
#[path = "sql/coordination.rs"]
mod coordination;
#[path = "sql/envelope.rs"]
mod envelope;
mod schema;

use application::Application;
use rdq_compliance::{Fixture, check_unless};
use rdq_postgres::{PostgresOptions, PostgresStorage};
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::postgres::{self, PostgresServer};
use schema::Schema;
use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What functions do not do: they have no memory in which queues take turns, and draw lots; and they
/// do not say when to come again.
const SERVERS_ALONE: [&str; 3] = [
    "order::a_full_queue_does_not_starve_another",
    "order::single_claims_are_fair_beside_those_of_others",
    "order::a_claim_says_when_to_come_again",
];
/// Areas that are about no task, or about reading alone: the server's own run has them.
const NOT_OF_TASKS: [&str; 4] = ["paging::", "stats::", "queues::", "capabilities::"];

/// A schema of its own on a server that all cases share.
struct Shared {
    schema: Schema,
    opened: AtomicUsize,
}

impl Fixture for Shared {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: false,
        filter_pushdown: true,
        batch_enqueue: true,
    };
    // Those that have functions.
    const FACULTIES: Faculties = Faculties { signals: true, streams: true, ..Faculties::NONE };

    async fn create() -> Self {
        let server = PostgresServer::shared().await.expect("a PostgreSQL server");
        Self { schema: Schema::new(server), opened: AtomicUsize::new(0) }
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let options = PostgresOptions::from_url(&self.schema.url()).expect("a URL");
        let server = PostgresStorage::open(options).await.expect("the schema opens");
        if self.opened.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
            return Arc::new(server);
        }
        Arc::new(Application::beside(server, self.schema.server(), self.schema.name()).await)
    }
}

fn main() -> ExitCode {
    let skipped = SERVERS_ALONE.iter().chain(&NOT_OF_TASKS).map(|case| format!("--skip={case}"));
    let arguments = skipped.chain(std::env::args().skip(1));
    let summary = check_unless::<Shared>(postgres::missing(), arguments);
    let calls = application::calls();
    println!("calls of functions: {calls:?}");
    // A filter, or a list, asks for less.
    let is_whole = std::env::args().len() == 1 && summary.passed > 0;
    if summary.failed > 0 || (is_whole && calls.values().any(|&count| count == 0)) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
