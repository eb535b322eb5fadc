//! What a storage may have beside tasks: who asks for a faculty that is not there is told so.

use crate::{Engine, core::Core};
use rdq_spi::{
    Faculties, Ledger, Locks, Records, Result, Signals, Storage, StorageError, Streams,
    Transactions,
};

impl Engine {
    /// Which faculties the storage has beside tasks.
    pub fn faculties(&self) -> Faculties {
        Faculties::of(&*self.core.storage)
    }

    /// Whether the storage can keep outboxes.
    pub fn has_outboxes(&self) -> bool {
        self.core.has_outboxes
    }
}

impl Core {
    /// Whether the storage has streams and signals that tell of them.
    pub(crate) fn has_wakes(&self) -> bool {
        self.storage.signals().is_some()
    }
}

/// Whether the storage finds claims by who holds them, which is how outboxes name theirs.
pub(crate) async fn finds_holders(storage: &dyn Storage) -> Result<bool> {
    match storage.claims_of(Vec::new()).await {
        Ok(_) => Ok(true),
        Err(StorageError::Unsupported { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(crate) fn signals<'a>(
    storage: &'a dyn Storage,
    operation: &'static str,
) -> Result<&'a dyn Signals> {
    storage.signals().ok_or(StorageError::Unsupported { operation })
}

pub(crate) fn streams<'a>(
    storage: &'a dyn Storage,
    operation: &'static str,
) -> Result<&'a dyn Streams> {
    storage.streams().ok_or(StorageError::Unsupported { operation })
}

pub(crate) fn locks<'a>(
    storage: &'a dyn Storage,
    operation: &'static str,
) -> Result<&'a dyn Locks> {
    storage.locks().ok_or(StorageError::Unsupported { operation })
}

pub(crate) fn records<'a>(
    storage: &'a dyn Storage,
    operation: &'static str,
) -> Result<&'a dyn Records> {
    storage.records().ok_or(StorageError::Unsupported { operation })
}

pub(crate) fn ledger<'a>(
    storage: &'a dyn Storage,
    operation: &'static str,
) -> Result<&'a dyn Ledger> {
    storage.ledger().ok_or(StorageError::Unsupported { operation })
}

pub(crate) fn transactions<'a>(
    storage: &'a dyn Storage,
    operation: &'static str,
) -> Result<&'a dyn Transactions> {
    storage.transactions().ok_or(StorageError::Unsupported { operation })
}
