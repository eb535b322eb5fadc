//! The memory plugin with one mistake at a time, put into what goes in and what comes out of it. It
//! has no rules of its own.

mod coordination;
mod ledger;
mod memo;
mod mistakes;
mod storage;

use memo::Memo;
use rdq_compliance::Fixture;
use rdq_memory::MemoryStorage;
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use std::sync::{Arc, Mutex};

pub(crate) use mistakes::Fault;

tokio::task_local! {
    /// The mistake of the storages that a case creates.
    pub(crate) static FAULT: Fault;
}

/// A storage with a mistake. Handles share the data, and what the mistake remembers.
pub(crate) struct FaultyFixture {
    store: MemoryStorage,
    fault: Fault,
    memo: Arc<Mutex<Memo>>,
}

impl Fixture for FaultyFixture {
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::None,
        notify: true,
        waiting_claims: true,
        filter_pushdown: true,
        batch_enqueue: true,
    };

    const FACULTIES: Faculties = Faculties::ALL;

    async fn create() -> Self {
        let memo = Arc::default();
        Self { store: MemoryStorage::new(), fault: FAULT.get(), memo }
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let store = Arc::new(self.store.clone());
        Arc::new(storage::Faulty { store, fault: self.fault, memo: self.memo.clone() })
    }
}
