//! Coordination: `impl` of each faculty beside tasks, one short method per operation. What changes
//! anything goes to the writer, where a commit calls the same functions as the plain calls do.

mod joined;
mod ledger;
mod listening;
mod locks;
mod records;
mod streams;
mod transactions;

pub use joined::{Joined, join, join_open};
pub(crate) use listening::{Heard, Listeners, News, Since, forget_notifications};
pub(crate) use streams::Counter;

use crate::{SqliteStorage, storage::cost_of, writer::Writer};
use async_trait::async_trait;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, HeldLock, Hold, Ledger, ListRecords,
    LockName, Locks, Mutation, MutationScope, NewEvent, Operation, PruneParams, Pruned, ReadParams,
    Record, RecordKey, RecordPage, Records, Rejected, Result, SaveOffset, Signals, StreamEvent,
    StreamName, StreamTurns, Streams, Topic, Transaction, Transactions, TrimParams, Trimmed,
    TryLock, Wakes,
    replayed::{Replay, ReplayedTransaction, Run, Then},
};
use std::{sync::Arc, time::Duration};

#[async_trait]
impl Signals for SqliteStorage {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        self.writer
            .call("notify", channels.len(), move |tx| {
                channels.iter().try_for_each(|channel| listening::notify(tx, channel))
            })
            .await
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        // Subscribed before it is looked what was there, so that nothing falls in between.
        let wakes = self.listeners.listen(&topics);
        let since = self.readers.call("listen", move |snapshot| snapshot.since(&topics)).await?;
        self.writer.listen(since)?;
        Ok(wakes)
    }
}

#[async_trait]
impl Streams for SqliteStorage {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        self.wait_for_turns(events.iter().map(|event| &event.stream)).await?;
        let cost = events.iter().map(|event| cost_of(event.payload.len())).sum();
        self.writer
            .call("publish", cost, move |tx| {
                events.iter().map(|event| streams::publish(tx, event).map(Ok)).collect()
            })
            .await
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.readers.call("read", move |snapshot| snapshot.read(&params)).await
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        self.writer
            .call("save_offsets", offsets.len(), move |tx| {
                offsets.iter().map(|save| streams::save_offset(tx, save).map(Ok)).collect()
            })
            .await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        self.readers.call("offset", move |snapshot| snapshot.offset(&stream, &consumer)).await
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        let cost = params.limit as usize;
        self.writer.call("trim", cost, move |tx| streams::trim(tx, &params)).await
    }
}

#[async_trait]
impl Locks for SqliteStorage {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        self.writer.call("try_lock", 1, move |tx| locks::try_lock(tx, &params)).await
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        self.writer.call("renew_lock", 1, move |tx| locks::renew(tx, &hold, ttl)).await
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        self.writer.call("release_lock", 1, move |tx| locks::release(tx, &hold)).await
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        self.readers.call("get_lock", move |snapshot| snapshot.lock(&name)).await
    }
}

#[async_trait]
impl Records for SqliteStorage {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        self.readers.call("get_record", move |snapshot| snapshot.record(&key)).await
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        let bytes = |change: &CompareAndSet| change.value.as_ref().map_or(0, bytes::Bytes::len);
        let cost = changes.iter().map(|change| cost_of(bytes(change))).sum();
        self.writer
            .call("compare_and_set", cost, move |tx| {
                changes.iter().map(|change| records::compare_and_set(tx, change)).collect()
            })
            .await
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        self.readers.call("list_records", move |snapshot| snapshot.records(&params)).await?
    }
}

#[async_trait]
impl Ledger for SqliteStorage {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        self.readers.call("mutation", move |snapshot| snapshot.mutation(&scope)).await
    }

    async fn prune(&self, params: PruneParams) -> Result<Pruned> {
        let cost = params.limit as usize;
        self.writer.call("prune", cost, move |tx| ledger::prune(tx, params)).await
    }
}

#[async_trait]
impl Transactions for SqliteStorage {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        self.wait_for_turns(operations.iter().filter_map(Operation::published)).await?;
        let cost = transactions::cost(&operations);
        self.writer
            .call("commit", cost, move |tx| transactions::commit(tx, &operations))
            .await
            .map_err(Rejected::from)?
    }

    fn interactive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        self.writer.check_open()?;
        let replayer = Replayer { writer: self.writer.clone(), turns: self.turns.clone() };
        Ok(Box::new(ReplayedTransaction::new(Arc::new(replayer))))
    }
}

impl SqliteStorage {
    /// Interactive transactions of this process that publish to these streams come first.
    async fn wait_for_turns(
        &self,
        streams: impl Iterator<Item = &StreamName> + Send,
    ) -> Result<()> {
        let taken = self.turns.taken(streams);
        self.turns.wait(taken).await
    }
}

/// Runs interactive transactions. One that is open outlives the handle that began it, and is refused
/// once that is closed.
#[derive(Debug)]
struct Replayer {
    writer: Writer,
    turns: StreamTurns,
}

#[async_trait]
impl Replay for Replayer {
    async fn run(&self, calls: Vec<Vec<Operation>>, then: Then) -> Result<Run, Rejected> {
        let cost = calls.iter().map(|operations| transactions::cost(operations)).sum();
        self.writer
            .call("transaction", cost, move |tx| transactions::replay(tx, &calls, &then))
            .await
            .map_err(Rejected::from)?
    }

    fn turns(&self) -> &StreamTurns {
        &self.turns
    }
}
