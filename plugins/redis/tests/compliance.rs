//! The compliance kit on Redis, on Valkey, and on a server in cluster mode, which refuses calls whose
//! keys it could not keep together.

mod servers;

use rdq_compliance::{Fixture, check_unless};
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use rdq_test_servers::redis::Flavor;
use servers::Served;
use std::sync::Arc;

const CAPABILITIES: Capabilities = Capabilities {
    durability: Durability::PowerCut,
    notify: true,
    waiting_claims: false,
    filter_pushdown: true,
    batch_enqueue: true,
};

const FACULTIES: Faculties = Faculties { interactive: false, ..Faculties::ALL };

/// A namespace of its own on a server of its own. Each handle is one more server on it.
macro_rules! fixture {
    ($name:ident, $serve:expr) => {
        struct $name(Served);

        impl Fixture for $name {
            const CAPABILITIES: Capabilities = CAPABILITIES;
            const FACULTIES: Faculties = FACULTIES;

            async fn create() -> Self {
                Self($serve.await)
            }

            async fn open(&self) -> Arc<dyn Storage> {
                Arc::new(self.0.open().await)
            }

            async fn restart(&self) {
                self.0.restart();
            }
        }
    };
}

fixture!(OnRedis, Served::start(Flavor::Redis));
fixture!(OnValkey, Served::start(Flavor::Valkey));
fixture!(OnClusterNode, Served::start_cluster_node(Flavor::Redis));

fn run<F: Fixture>(what: &str, missing: Option<String>) -> u64 {
    println!("{what}");
    check_unless::<F>(missing, std::env::args().skip(1)).failed
}

fn main() {
    let failed = run::<OnRedis>("on Redis", Flavor::Redis.missing())
        + run::<OnValkey>("on Valkey", Flavor::Valkey.missing())
        + run::<OnClusterNode>("on a cluster's node", Flavor::Redis.missing_locally());
    std::process::exit(if failed > 0 { 101 } else { 0 });
}
