//! The faculties beside tasks: one short method per operation. Each is one statement of one
//! transaction, but for transactions of many operations.

mod join;
mod ledger;
mod locks;
mod operations;
mod records;
mod session;
mod signals;
mod streams;
mod tasks;
mod transactions;

pub use join::{JoinError, Joined, join, join_namespace};
pub(crate) use signals::Announcer;

use crate::{
    errors::{Failure, Sql},
    heads::Heads,
    pool::{Pool, TURN_MAX},
    rounds::repeated,
    storage::PostgresStorage,
    token::StoreId,
    waiting::Waiting,
};
use async_trait::async_trait;
use futures::{FutureExt as _, future::BoxFuture};
use operations::runs;
use rdq_spi::{
    Applied, ChannelName, ClaimToken, CompareAndSet, ConsumerName, HeldClaim, HeldLock, Hold,
    Ledger, ListRecords, LockName, Locks, Mutation, MutationScope, NewEvent, Operation,
    PruneParams, Pruned, ReadParams, Record, RecordKey, RecordPage, Records, Rejected, Result,
    SaveOffset, Signals, StorageError, StreamEvent, StreamName, Streams, Timestamp, Topic,
    Transaction, Transactions, TrimParams, Trimmed, TryLock, Wakes,
};
use sqlx::PgConnection;
use std::{hash::Hash, sync::Arc, time::Duration};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::JoinHandle,
};

/// PostgreSQL's own limit of a notification's payload.
const PAYLOAD_BYTES_MAX: usize = 8_000;

/// What coordination needs of its storage. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Coordination {
    pool: Arc<Pool>,
    store_id: StoreId,
    heads: Arc<Heads>,
    waiting: Arc<Waiting>,
    announcer: Announcer,
    /// Turns of interactive transactions, whose connections are their own: others wait for none.
    interactive: Arc<Semaphore>,
    /// Turns of calls that may have to wait for somebody's transaction: they leave other calls half of
    /// the connections.
    patient: Arc<Semaphore>,
    announcing: Arc<Announcing>,
}

/// The task that tells other servers; it ends with the storage.
#[derive(Debug)]
struct Announcing(JoinHandle<()>);

impl Drop for Announcing {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Coordination {
    /// Starts what tells other servers.
    pub(crate) fn start(
        pool: &Arc<Pool>,
        store_id: StoreId,
        heads: &Arc<Heads>,
        waiting: &Arc<Waiting>,
        announcer: Announcer,
    ) -> Self {
        Self {
            pool: Arc::clone(pool),
            store_id,
            heads: Arc::clone(heads),
            waiting: Arc::clone(waiting),
            interactive: Arc::new(Semaphore::new((pool.width / 2) as usize)),
            patient: Arc::new(Semaphore::new((pool.width / 2) as usize)),
            announcing: Arc::new(Announcing(tokio::spawn(announcer.clone().run()))),
            announcer,
        }
    }

    /// Ends every listener, and every transaction at its next call. Other servers are told of what
    /// was published.
    pub(crate) async fn close(&self) {
        self.interactive.close();
        self.announcing.0.abort();
        self.announcer.close().await;
    }

    /// The database's clock.
    pub(crate) async fn now(&self) -> Result<Timestamp> {
        let now = self.pool.read("now", |db| tasks::now(db).boxed());
        now.await.map(Timestamp::from_millis)
    }

    /// The tokens of claims that are their task's newest.
    pub(crate) async fn claims_of(
        &self,
        claims: Vec<HeldClaim>,
    ) -> Result<Vec<Option<ClaimToken>>> {
        let (store_id, claims) = (self.store_id, Arc::new(claims));
        let read = self.pool.read("claims_of", move |db| {
            let claims = Arc::clone(&claims);
            async move { tasks::claims_of(db, store_id, &claims).await }.boxed()
        });
        read.await
    }

    /// Runs a batch in as many statements as it takes for none to have a key twice.
    async fn in_runs<T, K: Eq + Hash>(
        &self,
        operation: &'static str,
        items: Vec<T>,
        key: impl Fn(&T) -> &K,
        run: impl for<'c> Fn(&'c mut PgConnection, Vec<&'c T>) -> BoxFuture<'c, Sql<Vec<Result<i64>>>>
        + Copy
        + Send
        + Sync
        + 'static,
    ) -> Result<Vec<Result<i64>>>
    where
        T: Send + Sync + 'static,
    {
        let _turn = self.patience(operation).await?;
        let items = Arc::new(items);
        let mut answers = Vec::new();
        for range in runs(&items, |_| (), |item| Some(key(item))) {
            let (all, of_run) = (Arc::clone(&items), range.clone());
            let answered = self.pool.write(operation, move |db| {
                let (all, of_run) = (Arc::clone(&all), of_run.clone());
                async move { run(db, all[of_run].iter().collect()).await }.boxed()
            });
            match answered.await {
                Ok(answered) => answers.extend(answered),
                // What earlier statements did stands: only these items fail.
                Err(error) if range.start > 0 => {
                    answers.extend(range.map(|_| Err(repeated(&error, operation))));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(answers)
    }

    /// A turn of a call that may have to wait.
    async fn patience(&self, operation: &'static str) -> Result<SemaphorePermit<'_>> {
        match tokio::time::timeout(TURN_MAX, self.patient.acquire()).await {
            Ok(turn) => turn.map_err(|_| StorageError::Closed),
            Err(_) => Err(Failure::of_connecting(sqlx::Error::PoolTimedOut).answer(operation)),
        }
    }

    /// Publishes events, and wakes whoever listens.
    async fn publish(&self, events: Arc<[NewEvent]>) -> Result<Vec<i64>> {
        let _turn = self.patience("publish").await?;
        let sent = Arc::clone(&events);
        let published = self.pool.write("publish", move |db| {
            let sent = Arc::clone(&sent);
            async move { streams::publish(db, &sent.iter().collect::<Vec<_>>()).await }.boxed()
        });
        let published = published.await;
        if matches!(published, Ok(_) | Err(StorageError::OutcomeUnknown { .. })) {
            self.announcer.published(events.iter().map(|event| &event.stream));
        }
        published
    }
}

#[async_trait]
impl Signals for PostgresStorage {
    fn payload_max(&self) -> Option<usize> {
        Some(PAYLOAD_BYTES_MAX)
    }

    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        self.check_open()?;
        self.coordination.announcer.notify(channels).await
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        self.check_open()?;
        Ok(self.coordination.announcer.listen(&topics))
    }
}

#[async_trait]
impl Streams for PostgresStorage {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        self.check_open()?;
        let offsets = self.coordination.publish(events.into()).await?;
        Ok(offsets.into_iter().map(Ok).collect())
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.check_open()?;
        let params = Arc::new(params);
        self.pool
            .read("read", move |db| {
                let params = Arc::clone(&params);
                async move { streams::read(db, &params).await }.boxed()
            })
            .await
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        self.check_open()?;
        let offsets: Vec<_> = offsets
            .into_iter()
            .map(|save| ((save.stream.clone(), save.consumer.clone()), save))
            .collect();
        self.coordination
            .in_runs(
                "save_offsets",
                offsets,
                |(key, _)| key,
                |db, saves| {
                    async move {
                        let saves: Vec<_> = saves.into_iter().map(|(_, save)| save).collect();
                        streams::save_offsets(db, &saves).await
                    }
                    .boxed()
                },
            )
            .await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        self.check_open()?;
        self.pool
            .read("offset", move |db| {
                let (stream, consumer) = (stream.clone(), consumer.clone());
                async move { streams::saved_offset(db, &stream, &consumer).await }.boxed()
            })
            .await
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        self.check_open()?;
        let params = Arc::new(params);
        self.pool
            .write("trim", move |db| {
                let params = Arc::clone(&params);
                async move { streams::trim(db, &params).await }.boxed()
            })
            .await
    }
}

#[async_trait]
impl Locks for PostgresStorage {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        self.check_open()?;
        let params = Arc::new(params);
        self.pool
            .write("try_lock", move |db| {
                let params = Arc::clone(&params);
                async move { locks::try_lock(db, &params).await }.boxed()
            })
            .await
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        self.check_open()?;
        let hold = Arc::new(hold);
        self.pool
            .write("renew_lock", move |db| {
                let hold = Arc::clone(&hold);
                async move { locks::renew(db, &hold, ttl).await }.boxed()
            })
            .await
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        self.check_open()?;
        let hold = Arc::new(hold);
        self.pool
            .write("release_lock", move |db| {
                let hold = Arc::clone(&hold);
                async move { locks::release(db, &hold).await }.boxed()
            })
            .await
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        self.check_open()?;
        self.pool
            .read("get_lock", move |db| {
                let name = name.clone();
                async move { locks::get(db, &name).await }.boxed()
            })
            .await
    }
}

#[async_trait]
impl Records for PostgresStorage {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        self.check_open()?;
        self.pool
            .read("get_record", move |db| {
                let key = key.clone();
                async move { records::get(db, &key).await }.boxed()
            })
            .await
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        self.check_open()?;
        self.coordination
            .in_runs(
                "compare_and_set",
                changes,
                |change| &change.key,
                |db, changes| async move { records::compare_and_set(db, &changes).await }.boxed(),
            )
            .await
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        self.check_open()?;
        let store_id = self.store_id;
        let place = records::decode(store_id, params.space, params.position.as_ref())?;
        let asked = Arc::new((params, place));
        self.pool
            .read("list_records", move |db| {
                let asked = Arc::clone(&asked);
                async move { records::list(db, store_id, &asked.0, asked.1.as_ref()).await }.boxed()
            })
            .await
    }
}

#[async_trait]
impl Ledger for PostgresStorage {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        self.check_open()?;
        self.pool
            .read("mutation", move |db| {
                let scope = scope.clone();
                async move { ledger::get(db, &scope).await }.boxed()
            })
            .await
    }

    async fn prune(&self, params: PruneParams) -> Result<Pruned> {
        self.check_open()?;
        self.pool.write("prune", move |db| ledger::prune(db, params).boxed()).await
    }
}

#[async_trait]
impl Transactions for PostgresStorage {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        self.check_open()?;
        let base = self.coordination.clone();
        // In a task of its own: it runs to its end even if nobody waits for it any more.
        let ran = tokio::spawn(async move { base.commit(operations).await });
        ran.await.unwrap_or_else(|error| {
            let source = std::io::Error::other(error).into();
            Err(StorageError::Internal { operation: "commit", source }.into())
        })
    }

    fn interactive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        self.check_open()?;
        Ok(Box::new(transactions::Interactive::begin(self.coordination.clone()).await?))
    }
}

impl Coordination {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        // Events alone are one statement, which commits by itself and refuses none of them.
        if operations.iter().all(|operation| matches!(operation, Operation::Publish(_))) {
            let events = operations.into_iter().filter_map(|operation| match operation {
                Operation::Publish(event) => Some(event),
                _ => None,
            });
            let offsets = self.publish(events.collect()).await?;
            return Ok(offsets.into_iter().map(Applied::Published).collect());
        }
        let _turn = self.patience("commit").await?;
        transactions::commit(self, &operations).await
    }
}
