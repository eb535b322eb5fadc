//! Coordination: `impl` of each faculty beside tasks, one short method per operation. Each is one
//! call of a function of the same name.

mod commits;
mod ledger;
mod locks;
mod records;
mod signals;
mod streams;

pub(crate) use signals::read as read_wakes;

use crate::{
    errors::Access::{Reads, Writes},
    replies::Reply,
    storage::{RedisStorage, bytes_of},
};
use async_trait::async_trait;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, HeldLock, Hold, Ledger, ListRecords,
    LockName, Locks, Mutation, MutationScope, NewEvent, Operation, PruneParams, Pruned, ReadParams,
    Record, RecordKey, RecordPage, Records, Rejected, Result, SaveOffset, Signals, StorageError,
    StreamEvent, StreamName, Streams, Topic, Transactions, TrimParams, Trimmed, TryLock, Wakes,
};
use std::time::Duration;

#[async_trait]
impl Signals for RedisStorage {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        let args = channels.iter().map(signals::topic_of_channel).collect();
        self.call("notify", Writes, args, |_| Some(())).await
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        self.connections.check_open()?;
        self.hints.listen(&self.config, &self.connections, &topics).await
    }
}

#[async_trait]
impl Streams for RedisStorage {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        let args = events.iter().flat_map(streams::event).collect();
        self.call_each("publish", Writes, events, args, |reply, _| Some(Ok(reply.number()?))).await
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.call("read_events", Reads, streams::read(&params), streams::events).await
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        let args = offsets.iter().flat_map(streams::save).collect();
        self.call_each("save_offsets", Writes, offsets, args, |reply, _| {
            Some(Ok(streams::saved(reply)?))
        })
        .await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        let args = vec![streams::saved_field(&stream, &consumer)];
        self.call("offset", Reads, args, streams::saved).await
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        self.call("trim", Writes, streams::trim(&params), streams::trimmed).await
    }
}

#[async_trait]
impl Locks for RedisStorage {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        self.call("try_lock", Writes, locks::try_lock(&params), locks::held).await
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        self.call("renew_lock", Writes, locks::hold(&hold, ttl), locks::held).await
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        let args = locks::hold(&hold, Duration::ZERO);
        self.call("release_lock", Writes, args, |reply| Some(reply.number()? == 1)).await
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        // All that it writes is the clock.
        self.call("get_lock", Reads, vec![bytes_of(name.as_str())], locks::held).await
    }
}

#[async_trait]
impl Records for RedisStorage {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        let args = vec![records::field(&key)];
        self.call("get_record", Reads, args, |reply| records::found(&key.name, reply)).await
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        let is_set = changes.iter().any(|change| change.value.is_some());
        let function = if is_set { "compare_and_set" } else { "remove_records" };
        let args = changes.iter().flat_map(records::change).collect();
        self.call_each(function, Writes, changes, args, |reply, change| {
            Some(records::changed(reply.number()?, change))
        })
        .await
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        let list = records::List::of(&params)?;
        self.call("list_records", Reads, list.args(&params), |reply: Reply| list.page(reply)).await
    }
}

#[async_trait]
impl Transactions for RedisStorage {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        let observed = Operation::observation(&operations)?.map(|mutation| mutation.scope.clone());
        let makes_something = operations.iter().any(commits::makes_something);
        let function = if makes_something { "commit" } else { "commit_drains" };
        let expected: Vec<_> = operations.iter().map(commits::Expected::of).collect();
        let args = commits::args(operations);
        let answer =
            self.call(function, Writes, args, |reply| commits::answers(reply, &expected)).await;
        match (answer, observed) {
            // A full server refuses even to look whether this is a repetition, which needs no space.
            (Err(full @ StorageError::Full { .. }), Some(scope)) => {
                let error = match self.mutation(scope).await? {
                    Some(found) => StorageError::MutationObserved { mutation: Box::new(found) },
                    None => return Err(full.into()),
                };
                Err(Rejected { index: Some(0), error })
            }
            (answer, _) => answer?,
        }
    }
}

#[async_trait]
impl Ledger for RedisStorage {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        let args = vec![ledger::field(&scope)];
        self.call("mutation", Reads, args, |reply| ledger::found(&scope, reply)).await
    }

    async fn prune(&self, params: PruneParams) -> Result<Pruned> {
        let args = ledger::prune(params);
        self.call("prune", Writes, args, |reply| ledger::pruned(&reply, params.limit)).await
    }
}
