//! The faculties beside tasks: one short method per operation, each one step under the lock.

use crate::storage::{MemoryStorage, Shared};
use async_trait::async_trait;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, HeldLock, Hold, Ledger, ListRecords,
    LockName, Locks, Mutation, MutationScope, NewEvent, Operation, PruneParams, Pruned, ReadParams,
    Record, RecordKey, RecordPage, Records, Rejected, Result, SaveOffset, Signals, StorageError,
    StreamEvent, StreamName, StreamTurns, Streams, Timestamp, Topic, Transaction, Transactions,
    TrimParams, Trimmed, TryLock, Wakes,
    replayed::{Read, Replay, ReplayedTransaction, Run, Then},
};
use std::{sync::Arc, time::Duration};

#[async_trait]
impl Signals for MemoryStorage {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        self.call(|state, _| state.wakes.extend(channels.into_iter().map(Topic::Channel)))
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        self.check_open()?;
        Ok(self.until_closed(self.shared.wakes.listen(&topics)))
    }
}

#[async_trait]
impl Streams for MemoryStorage {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        let taken = self.shared.turns.taken(events.iter().map(|event| &event.stream));
        self.shared.turns.wait(taken).await?;
        self.call(|state, now| {
            events.into_iter().map(|event| Ok(state.publish(event, now))).collect()
        })
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.call(|state, _| state.read(&params))
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        self.call(|state, _| offsets.into_iter().map(|save| Ok(state.save_offset(save))).collect())
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        self.call(|state, _| state.offset(&stream, &consumer))
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        self.call(|state, _| state.trim(&params))
    }
}

#[async_trait]
impl Locks for MemoryStorage {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        self.call(|state, now| state.try_lock(params, now))
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        self.call(|state, now| state.renew_lock(&hold, ttl, now))
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        self.call(|state, now| state.release_lock(&hold, now))
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        self.call(|state, now| state.get_lock(&name, now))
    }
}

#[async_trait]
impl Records for MemoryStorage {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        self.call(|state, _| state.get_record(&key))
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        self.call(|state, now| {
            changes.into_iter().map(|change| state.compare_and_set(change, now)).collect()
        })
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        self.call(|state, _| state.list_records(&params))?
    }
}

#[async_trait]
impl Ledger for MemoryStorage {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        self.call(|state, _| state.mutations.get(&scope).cloned())
    }

    async fn prune(&self, params: PruneParams) -> Result<Pruned> {
        self.call(|state, now| state.prune(params, now))
    }
}

#[async_trait]
impl Transactions for MemoryStorage {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        self.check_open()?;
        let taken = self.shared.turns.taken(operations.iter().filter_map(Operation::published));
        self.shared.turns.wait(taken).await?;
        self.check_open()?;
        self.shared.call(|state, now| {
            state.attempt(now, |state| state.apply_all(operations, now), Result::is_ok)
        })
    }

    fn interactive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        self.check_open()?;
        Ok(Box::new(ReplayedTransaction::new(Arc::new(self.clone()))))
    }
}

#[async_trait]
impl Replay for MemoryStorage {
    async fn run(&self, calls: Vec<Vec<Operation>>, then: Then) -> Result<Run, Rejected> {
        self.check_open()?;
        let is_commit = matches!(then, Then::Commit(_));
        let run = |state: &mut crate::state::State, now: Timestamp| {
            let applied = state.apply_calls(calls, now)?;
            let read = match then {
                Then::Undo => Read::Nothing,
                Then::Get(task) => Read::Task(Box::new(state.find(&task)?.task.clone())),
                Then::Read(params) => Read::Events(state.read(&params)),
                Then::Offset(stream, consumer) => Read::Offset(state.offset(&stream, &consumer)),
                Then::Commit(expected) => {
                    let agrees = |(now, then): (&Applied, &Applied)| now.agrees(then);
                    if !applied.iter().zip(&expected).all(agrees) {
                        return Err(StorageError::Contention { operation: "commit" }.into());
                    }
                    Read::Nothing
                }
            };
            Ok(Run { applied, read })
        };
        let shared: &Shared = &self.shared;
        shared.call(|state, now| {
            state.attempt(now, |state| run(state, now), |run| is_commit && run.is_ok())
        })
    }

    fn turns(&self) -> &StreamTurns {
        &self.shared.turns
    }
}
