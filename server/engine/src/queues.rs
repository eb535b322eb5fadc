//! The live configuration of every queue: read from the storage every second, and at once after a
//! change through this server. Merging is pure and stands in `configuration.rs`.

use crate::{EngineError, QueueFile, configuration::Effective, outbox_name};
use rdq_spi::{QueueName, QueueRecord, Storage};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
};
use tokio::sync::{Mutex, watch};

pub(crate) struct Queues {
    pub(crate) file: QueueFile,
    pub(crate) require_declared: bool,
    current: RwLock<Arc<Snapshot>>,
    changed: watch::Sender<()>,
    /// Reads are installed in the order in which they were made.
    reading: Mutex<()>,
    /// Changes through this server: each is made of what the one before it stored.
    pub(crate) changing: Mutex<()>,
}

/// The configuration of every queue at one moment.
pub(crate) struct Snapshot {
    pub(crate) records: BTreeMap<QueueName, QueueRecord>,
    configured: HashMap<QueueName, Arc<Effective>>,
    default: Arc<Effective>,
    outbox: Arc<Effective>,
}

impl Snapshot {
    fn new(file: &QueueFile, records: Vec<QueueRecord>) -> Self {
        let records: BTreeMap<_, _> =
            records.into_iter().map(|record| (record.queue.clone(), record)).collect();
        let configured = records.keys().chain(file.queues.keys()).map(|queue| {
            let stored = records.get(queue).map(|record| &record.config);
            let layers: Vec<_> =
                stored.into_iter().chain(file.queues.get(queue)).chain([&file.defaults]).collect();
            (queue.clone(), Arc::new(Effective::of(&layers)))
        });
        Self {
            configured: configured.collect(),
            default: Arc::new(Effective::of(&[&file.defaults])),
            outbox: Arc::new(Effective::of(&[&outbox_name::configuration()])),
            records,
        }
    }

    pub(crate) fn effective(&self, queue: &QueueName) -> &Arc<Effective> {
        if outbox_name::is_internal(queue) {
            return &self.outbox;
        }
        self.configured.get(queue).unwrap_or(&self.default)
    }

    pub(crate) fn is_declared(&self, queue: &QueueName) -> bool {
        self.configured.contains_key(queue)
    }
}

impl Queues {
    pub(crate) fn new(file: QueueFile, require_declared: bool) -> Self {
        let snapshot = Snapshot::new(&file, Vec::new());
        Self {
            file,
            require_declared,
            current: RwLock::new(Arc::new(snapshot)),
            changed: watch::Sender::new(()),
            reading: Mutex::new(()),
            changing: Mutex::new(()),
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells of every change from now on.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) async fn refresh(&self, storage: &dyn Storage) -> Result<(), EngineError> {
        let _turn = self.reading.lock().await;
        let records = storage.queue_records().await?;
        let unchanged = self.snapshot().records.values().eq(&records);
        if !unchanged {
            let snapshot = Arc::new(Snapshot::new(&self.file, records));
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = snapshot;
            self.changed.send_replace(());
        }
        Ok(())
    }

    /// Refuses a queue that nobody declared, if declarations are demanded.
    pub(crate) fn check_declared(&self, queue: &QueueName) -> Result<(), EngineError> {
        let is_undeclared = || !self.snapshot().is_declared(queue);
        if self.require_declared && !outbox_name::is_internal(queue) && is_undeclared() {
            return Err(EngineError::QueueNotFound { queue: queue.clone() });
        }
        Ok(())
    }
}
