//! The compliance kit on this plugin. No case is here.

use rdq_compliance::Fixture;
use rdq_memory::MemoryStorage;
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use std::sync::Arc;

struct MemoryFixture(MemoryStorage);

impl Fixture for MemoryFixture {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::None,
        notify: true,
        waiting_claims: true,
        filter_pushdown: true,
        batch_enqueue: true,
    };

    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        Self(MemoryStorage::new())
    }

    async fn open(&self) -> Arc<dyn Storage> {
        Arc::new(self.0.clone())
    }
}

fn main() {
    rdq_compliance::main::<MemoryFixture>();
}
