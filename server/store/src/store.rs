//! The application's handle on everything.

use crate::{
    Lock, Outbox, Queue, QueueOpts, Result, Schedule, ScheduleOpts, StopToken, StreamHandle,
    TxHandle, WakeReceiver, encode_payload, error::named, lock, opening, record, schedule, signal,
};
use rdq_engine::{Engine, EngineOptions, OutboxName, TransactionLimits};
use rdq_spi::{ChannelName, LockName, OwnerName, QueueName, Record, StreamName, TryLock};
use serde::Serialize;
use std::time::Duration;

/// Whose the transactions of this process are.
pub(crate) const SUBJECT: &str = "in process";
/// So many transactions are open at once; the backend may bound them further.
const TRANSACTIONS_MAX: usize = 1000;

/// An open store: tasks, streams, locks, outboxes, schedules and signals on one database, in this
/// process. A clone is another handle on it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) engine: Engine,
}

impl Store {
    /// Opens the store that the URL names (`sqlite:PATH`, `postgres://…`, `redis://…`, `mongodb://…`,
    /// `memory:` or `http://HOST:PORT` of a server), and makes its schema where there is none.
    /// Applications and servers may share one database.
    pub async fn open(url: &str) -> Result<Self> {
        let storage = opening::open(url).await?;
        let transactions =
            TransactionLimits { per_subject: TRANSACTIONS_MAX, ..TransactionLimits::default() };
        let options = EngineOptions { transactions, ..EngineOptions::default() };
        Ok(Self { engine: Engine::start(storage, options).await? })
    }

    /// Ends subscriptions, waits for what is under way and closes the database. Calls after it are
    /// [`crate::StoreError::Closed`].
    pub async fn close(&self) {
        self.engine.drain().await;
    }

    /// A queue. Its options travel on each task that this handle enqueues.
    pub fn queue(&self, name: &str, opts: QueueOpts) -> Result<Queue> {
        let name = named("queue", QueueName::new(name))?;
        Ok(Queue { engine: self.engine.clone(), name, opts })
    }

    /// An outbox: messages that are carried elsewhere, each at least once.
    pub fn outbox(&self, name: &str) -> Result<Outbox> {
        let name = OutboxName::new(named("outbox", QueueName::new(name))?);
        Ok(Outbox { engine: self.engine.clone(), name })
    }

    /// A stream of events.
    pub fn stream(&self, name: &str) -> Result<StreamHandle> {
        let name = named("stream", StreamName::new(name))?;
        Ok(StreamHandle { engine: self.engine.clone(), name })
    }

    /// Wakes whoever listens to the channel. Nobody is given the payload; on PostgreSQL it has at
    /// most 8,000 bytes as JSON.
    pub async fn notify<T: Serialize + ?Sized>(&self, channel: &str, payload: &T) -> Result<()> {
        let channel = named("channel", ChannelName::new(channel))?;
        Ok(self.engine.notify(channel, encode_payload(payload)?.len()).await?)
    }

    /// Listens to a channel, from now on.
    pub async fn listen(&self, channel: &str) -> Result<WakeReceiver> {
        signal::listen(&self.engine, channel).await
    }

    /// Acquires a lock that nobody holds; `None` if somebody else does. The owner itself gets the
    /// hold that it has.
    pub async fn try_lock(&self, name: &str, owner: &str, ttl: Duration) -> Result<Option<Lock>> {
        let name = named("name", LockName::new(name))?;
        let owner = named("owner", OwnerName::new(owner))?;
        let params = TryLock { name: name.clone(), owner, ttl };
        let held = self.engine.try_lock(params).await?;
        Ok(held.map(|held| lock::taken(self.engine.clone(), name, held)))
    }

    /// Stores a schedule, in place of the one of that name. It fires only while somebody runs
    /// [`Store::run_schedules`], or a server runs on the same database.
    pub async fn schedule<T: Serialize + ?Sized>(
        &self,
        name: &str,
        spec: &str,
        queue: &str,
        payload: &T,
        opts: ScheduleOpts,
    ) -> Result<Schedule> {
        let payload = encode_payload(payload)?;
        schedule::put(&self.engine, (name, spec), queue, payload, opts).await
    }

    /// Removes a schedule, and says whether there was one.
    pub async fn unschedule(&self, name: &str) -> Result<bool> {
        schedule::remove(&self.engine, name).await
    }

    /// Runs the schedules until told to stop. Any number of processes may call this: one runs them,
    /// the others stand by. [`crate::StoreError::LeadershipLost`] once somebody else does: call again to
    /// stand by.
    pub async fn run_schedules(&self, stop: StopToken) -> Result<()> {
        schedule::run(&self.engine, stop).await
    }

    /// Reads a record.
    pub async fn get_record(&self, key: &str) -> Result<Option<Record>> {
        record::get(&self.engine, key).await
    }

    /// Sets a record that is at this revision, 0 if it does not exist; answers the new revision.
    pub async fn compare_and_set<T: Serialize + ?Sized>(
        &self,
        key: &str,
        value: &T,
        expected_revision: i64,
    ) -> Result<i64> {
        let value = Some(encode_payload(value)?);
        record::change(&self.engine, key, value, expected_revision).await
    }

    /// Deletes a record that is at this revision.
    pub async fn delete_record(&self, key: &str, expected_revision: i64) -> Result<()> {
        record::change(&self.engine, key, None, expected_revision).await.map(drop)
    }

    /// Begins a transaction. Dropped before [`TxHandle::commit`], it is rolled back.
    pub async fn begin_tx(&self) -> Result<TxHandle> {
        Ok(TxHandle { open: self.engine.begin(SUBJECT).await? })
    }

    /// Does `work` in a transaction: committed if it answers `Ok`, rolled back if it answers an error,
    /// panics or is dropped.
    pub async fn with_tx<T>(
        &self,
        work: impl AsyncFnOnce(&mut TxHandle) -> Result<T>,
    ) -> Result<T> {
        let mut tx = self.begin_tx().await?;
        match work(&mut tx).await {
            Ok(answer) => {
                tx.commit().await?;
                Ok(answer)
            }
            Err(error) => {
                // What is wrong is said already; dropping it rolls back as well.
                tx.rollback().await.ok();
                Err(error)
            }
        }
    }
}
