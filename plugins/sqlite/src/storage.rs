//! `impl Storage`: one short method per operation. What changes anything goes to the writer, and
//! what reads goes to a reader.

use crate::{
    admission,
    checkpoint::Checkpointer,
    claims,
    clock::Mark,
    config::{OpenError, SqliteOptions},
    connection,
    coordination::Listeners,
    dead_letters, holding,
    job::Role,
    migrations, queues,
    reader::Readers,
    reads::not_found,
    sweeps,
    writer::Writer,
};
use async_trait::async_trait;
use rdq_spi::{
    Admission, Awaited, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed,
    DlqListParams, DueHints, Durability, ExtendParams, Extended, HeldClaim, HintHub, Ledger,
    ListParams, Locks, Migrated, NewTask, Page, PurgeParams, QueueConfig, QueueName, QueueRecord,
    QueueStats, Records, RedriveParams, Resolution, Resolved, Result, Signals, Step, Storage,
    StorageError, StreamTurns, Streams, SweepParams, Swept, Task, TaskId, Timestamp, Transactions,
};
use rusqlite::Connection;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// Tasks in one SQLite file, which several processes may share. Dropping it finishes what was
/// begun and closes the file.
#[derive(Debug)]
pub struct SqliteStorage {
    pub(crate) writer: Writer,
    pub(crate) readers: Arc<Readers>,
    hub: Arc<HintHub>,
    pub(crate) listeners: Arc<Listeners>,
    pub(crate) turns: StreamTurns,
}

impl SqliteStorage {
    /// Opens the file, making or upgrading it where needed.
    pub async fn open(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.to_owned();
        let open = tokio::task::spawn_blocking(move || Self::open_blocking(&path, &options));
        open.await.unwrap_or_else(|error| Err(OpenError::Thread(std::io::Error::other(error))))
    }

    /// Makes or upgrades the file's schema, and closes it again.
    pub async fn migrate(path: &Path) -> Result<Migrated, OpenError> {
        let path = path.to_owned();
        let migrate = tokio::task::spawn_blocking(move || Self::prepare(&path).map(|it| it.2));
        migrate.await.unwrap_or_else(|error| Err(OpenError::Thread(std::io::Error::other(error))))
    }

    fn open_blocking(path: &Path, options: &SqliteOptions) -> Result<Self, OpenError> {
        let (path, db, _) = Self::prepare(path)?;
        Self::start(&path, db, options)
    }

    fn prepare(path: &Path) -> Result<(PathBuf, Connection, Migrated), OpenError> {
        connection::check_library()?;
        let path = connection::plain_path(path)?;
        let db = connection::open_writer(&path)?;
        let migrated = migrations::migrate(&db)?;
        Ok((path, db, migrated))
    }

    /// Serves the file through this writing connection.
    pub(crate) fn start(
        path: &Path,
        db: Connection,
        options: &SqliteOptions,
    ) -> Result<Self, OpenError> {
        let readers = (0..options.readers.max(1))
            .map(|_| connection::open_reader(path))
            .collect::<Result<_, _>>()?;
        let hub = Arc::new(HintHub::default());
        let listeners = Arc::new(Listeners::default());
        let checkpointer = Checkpointer::start(path)?;
        let writer =
            Writer::start(path, db, checkpointer, Arc::clone(&hub), Arc::clone(&listeners))?;
        let readers = Arc::new(Readers::new(path.to_owned(), readers));
        Ok(Self { writer, readers, hub, listeners, turns: StreamTurns::default() })
    }
}

impl Drop for SqliteStorage {
    fn drop(&mut self) {
        // Those who wait would wait for ever.
        self.hub.close();
        self.listeners.close();
    }
}

#[async_trait]
#[allow(
    clippy::redundant_closure_for_method_calls,
    reason = "the methods alone are of one lifetime, and these must be of any"
)]
impl Storage for SqliteStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::PowerCut,
            notify: true,
            waiting_claims: true,
            filter_pushdown: true,
            batch_enqueue: true,
        }
    }

    async fn ping(&self) -> Result<()> {
        self.readers.call("ping", |_| Ok(())).await?;
        self.writer.call("ping", 1, |tx| tx.touch()).await
    }

    async fn close(&self) {
        self.readers.close();
        self.writer.close().await;
        self.hub.close();
        self.listeners.close();
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        let cost = tasks.iter().map(|task| cost_of(task.envelope.len())).sum();
        self.writer
            .call_as(Role::Admits, "enqueue", cost, move |tx| admission::enqueue_all(tx, &tasks))
            .await
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        let cost = claims.iter().map(|params| params.limit as usize).sum();
        let claims: Arc<[_]> = claims.into();
        let own = Arc::clone(&claims);
        self.writer
            .call_as(Role::Claims(claims), "claim_due", cost, move |tx| claims::claim_all(tx, &own))
            .await
    }

    async fn claim_when_due(
        &self,
        claims: Vec<ClaimParams>,
        enough: CancellationToken,
    ) -> Result<Awaited> {
        let called = Mark::now();
        let claims: Arc<[_]> = claims.into();
        let own = Arc::clone(&claims);
        self.writer
            .call_waiting("claim_when_due", (claims, enough), Awaited::is_empty, move |tx| {
                let waited = tx.begun.since(called);
                Ok(Awaited { claims: claims::claim_all(tx, &own)?, waited })
            })
            .await
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        self.writer
            .call("extend_leases", leases.len(), move |tx| {
                leases.iter().map(|lease| holding::extend(tx, lease)).collect()
            })
            .await
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        self.writer
            .call("resolve", resolutions.len(), move |tx| {
                resolutions.iter().map(|resolution| holding::resolve(tx, resolution)).collect()
            })
            .await
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        self.readers.call("live_claims", move |snapshot| snapshot.live_claims(&claims)).await
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        self.writer
            .call("cancel", tasks.len(), move |tx| {
                tasks.iter().map(|task| holding::cancel(tx, task)).collect()
            })
            .await
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        self.readers
            .call("get", move |snapshot| Ok(snapshot.get(&task)?.ok_or_else(|| not_found(task))))
            .await?
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.readers.call("list", move |snapshot| snapshot.list(&params)).await?
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        self.readers.call("dlq_list", move |snapshot| snapshot.dlq_list(&params)).await?
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        let cost = params.limit as usize;
        self.writer.call("redrive", cost, move |tx| dead_letters::redrive(tx, &params)).await?
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        let cost = params.limit as usize;
        self.writer.call("purge", cost, move |tx| dead_letters::purge(tx, &params)).await?
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.readers.call("stats", move |snapshot| snapshot.stats(&queue)).await
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        let cost = params.limit as usize;
        self.writer.call("sweep", cost, move |tx| sweeps::sweep(tx, &params)).await
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.readers
            .call("queue_names", move |snapshot| snapshot.queue_names(after.as_ref(), limit))
            .await
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        let json = serde_json::to_string(&config).map_err(|error| StorageError::Internal {
            operation: "put_queue",
            source: error.into(),
        })?;
        self.writer.call("put_queue", 1, move |tx| queues::put(tx, &queue, &config, &json)).await?
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.readers.call("queue_records", |snapshot| snapshot.queue_records()).await
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        self.writer.call("delete_queue", 1, move |tx| queues::delete(tx, &queue)).await?
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        let name = name.to_owned();
        self.writer
            .call("shared_secret", 1, move |tx| queues::shared_secret(tx, &name, &candidate))
            .await
    }

    async fn now(&self) -> Result<Timestamp> {
        self.readers.call("now", |snapshot| Ok(snapshot.now)).await
    }

    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        self.readers.call("claims_of", move |snapshot| snapshot.claims_of(&claims)).await
    }

    fn signals(&self) -> Option<&dyn Signals> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn Records> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        // Subscribed before the writer looks, so that nothing falls in between.
        let hints = self.hub.subscribe(&queues);
        self.writer.watch()?;
        Ok(hints)
    }
}

/// About what a transaction spends on a task with so many bytes.
pub(crate) fn cost_of(bytes: usize) -> usize {
    1 + (bytes >> 10)
}
