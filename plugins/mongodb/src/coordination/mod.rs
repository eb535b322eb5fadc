//! The faculties beside tasks: one short method per operation. What writes runs to its end in a task
//! of its own and tells there who waits, whoever gives up waiting for its answer.

mod ledger;
mod locks;
mod records;
mod session;
mod signals;
mod streams;
mod transactions;

pub(crate) use ledger::{COLLECTION as MUTATIONS, age};
pub(crate) use signals::Announcer;

use crate::{
    calls::Calls,
    database::Db,
    errors::{Access, Failure, Step},
    storage::{MongoStorage, repeated},
    token::StoreId,
    waiting::Waiting,
};
use async_trait::async_trait;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, HeldLock, Hold, Ledger, ListRecords,
    LockName, Locks, Mutation, MutationScope, NewEvent, Operation, PruneParams, Pruned, ReadParams,
    Record, RecordKey, RecordPage, Records, Rejected, Result, SaveOffset, Signals, StorageError,
    StreamEvent, StreamName, StreamTurns, Streams, Topic, Transaction, Transactions, TrimParams,
    Trimmed, TryLock, Turn, Wakes,
    replayed::{Replay, ReplayedTransaction, Run, Then},
};
use session::{Ended, Runs};
use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

/// What coordination needs of its storage. Cheap to clone; an interactive transaction that is open
/// outlives the handle that began it, and is refused once that is closed.
#[derive(Debug, Clone)]
pub(crate) struct Coordination {
    db: Db,
    store_id: StoreId,
    calls: Calls,
    waiting: Arc<Waiting>,
    announcer: Announcer,
    turns: StreamTurns,
}

/// The collections that transactions write. They are made beforehand: two transactions that make one
/// fail each other.
pub(crate) const COLLECTIONS: [&str; 5] =
    [MUTATIONS, records::COLLECTION, streams::STREAMS, streams::EVENTS, streams::OFFSETS];

impl Coordination {
    pub(crate) fn new(
        db: &Db,
        store_id: StoreId,
        calls: &Calls,
        waiting: &Arc<Waiting>,
        announcer: Announcer,
    ) -> Self {
        let (db, calls, waiting) = (db.clone(), calls.clone(), Arc::clone(waiting));
        Self { db, store_id, calls, waiting, announcer, turns: StreamTurns::default() }
    }

    /// Runs a call to its end.
    async fn run<T: Send + 'static, F>(
        &self,
        operation: &'static str,
        access: Access,
        call: impl FnOnce(Self) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Step<T>> + Send + 'static,
    {
        self.calls.run(operation, access, call(self.clone())).await
    }

    /// Takes turns with those of this process who publish to these streams: of two at once, one would
    /// have to begin anew.
    async fn take_turns(&self, streams: BTreeSet<StreamName>) -> Result<Vec<Turn>> {
        let mut turns = Vec::with_capacity(streams.len());
        for stream in streams {
            turns.push(self.turns.take(&stream).await?);
        }
        Ok(turns)
    }

    async fn publish(&self, events: &[NewEvent]) -> Step<Vec<i64>> {
        let topics = events.iter().map(|event| Topic::Stream(event.stream.clone())).collect();
        let events: Vec<_> = events.iter().collect();
        let mut runs = Runs::default();
        let published = loop {
            let tx = self.db.begin(Access::Write).await?;
            let ended = async {
                let offsets = streams::publish(&tx, &events).await?;
                self.announcer.tell(&tx, &topics).await?;
                Ok(Ended::Kept(offsets))
            };
            let ended = ended.await;
            match runs.settle(tx, ended).await {
                Ok(None) => {}
                Ok(Some(offsets)) => break Ok(offsets),
                Err(failure) => break Err(failure),
            }
        };
        if matches!(published, Ok(_) | Err(Failure::Unknown(_))) {
            self.announcer.wake(&topics);
        }
        published
    }

    /// Runs the operations of calls in one transaction, and tells who waits of what was committed.
    async fn transact(
        &self,
        calls: &[Vec<Operation>],
        then: Option<&Then>,
    ) -> Step<Result<Run, Rejected>> {
        let Self { db, store_id, announcer, .. } = self;
        let ran = transactions::run(db, *store_id, announcer, calls, then).await;
        let is_commit = transactions::access(then) == Access::Write;
        match ran {
            Ok(Ok((done, read))) => {
                if is_commit {
                    announcer.wake(&done.topics);
                    done.dues.iter().for_each(|(queue, due_in)| self.waiting.hint(queue, *due_in));
                }
                Ok(Ok(Run { applied: done.applied, read }))
            }
            Ok(Err(rejected)) => Ok(Err(rejected)),
            Err(failure) => {
                if is_commit && matches!(failure, Failure::Unknown(_)) {
                    announcer.wake(&transactions::topics(calls));
                }
                Err(failure)
            }
        }
    }
}

#[async_trait]
impl Signals for MongoStorage {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        let notify =
            |base: Coordination| async move { base.announcer.notify(&base.db, channels).await };
        self.coordination.run("notify", Access::Write, notify).await
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        self.coordination.calls.check_open()?;
        Ok(self.coordination.announcer.listen(&topics))
    }
}

#[async_trait]
impl Streams for MongoStorage {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        self.coordination.calls.check_open()?;
        let streams = events.iter().map(|event| event.stream.clone()).collect();
        let turns = self.coordination.take_turns(streams).await?;
        let publish = |base: Coordination| async move {
            let _turns = turns;
            base.publish(&events).await
        };
        let offsets = self.coordination.run("publish", Access::Write, publish).await?;
        Ok(offsets.into_iter().map(Ok).collect())
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        let read = |base: Coordination| async move { streams::read(&base.db, &params).await };
        self.coordination.run("read", Access::Read, read).await
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        let save = |base: Coordination| async move {
            let mut answers = Vec::with_capacity(offsets.len());
            for save in &offsets {
                match streams::save_offset(&base.db, save).await {
                    Ok(saved) => answers.push(Ok(saved)),
                    Err(failure) => {
                        fail_rest(&mut answers, failure, "save_offsets", offsets.len())?;
                        break;
                    }
                }
            }
            Ok(answers)
        };
        self.coordination.run("save_offsets", Access::Write, save).await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        let read = |base: Coordination| async move {
            streams::saved_offset(&base.db, &stream, &consumer).await
        };
        self.coordination.run("offset", Access::Read, read).await
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        let trim = |base: Coordination| async move { streams::trim(&base.db, &params).await };
        self.coordination.run("trim", Access::Write, trim).await
    }
}

#[async_trait]
impl Locks for MongoStorage {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        let lock = |base: Coordination| async move { locks::try_lock(&base.db, &params).await };
        self.coordination.run("try_lock", Access::Write, lock).await
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        let renew = |base: Coordination| async move { locks::renew(&base.db, &hold, ttl).await };
        self.coordination.run("renew_lock", Access::Write, renew).await
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        let release = |base: Coordination| async move { locks::release(&base.db, &hold).await };
        self.coordination.run("release_lock", Access::Write, release).await
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        let get = |base: Coordination| async move { locks::get(&base.db, &name).await };
        self.coordination.run("get_lock", Access::Read, get).await
    }
}

#[async_trait]
impl Records for MongoStorage {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        let get = |base: Coordination| async move { records::get(&base.db, &key).await };
        self.coordination.run("get_record", Access::Read, get).await
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        let set = |base: Coordination| async move {
            let mut answers = Vec::with_capacity(changes.len());
            for change in &changes {
                match records::compare_and_set(&base.db, change).await {
                    Ok(changed) => answers.push(changed),
                    Err(failure) => {
                        fail_rest(&mut answers, failure, "compare_and_set", changes.len())?;
                        break;
                    }
                }
            }
            Ok(answers)
        };
        self.coordination.run("compare_and_set", Access::Write, set).await
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        let place = params.position.as_ref().map(|position| {
            let place = records::Place::decode(params.space, &params.prefix, position);
            place.ok_or(StorageError::InvalidPosition)
        });
        let place = place.transpose()?;
        let list =
            |base: Coordination| async move { records::list(&base.db, &params, place).await };
        self.coordination.run("list_records", Access::Read, list).await
    }
}

/// Answers the items of a batch that are left once the storage itself has failed: what was done
/// before stands.
fn fail_rest(
    answers: &mut Vec<Result<i64>>,
    failure: Failure,
    operation: &'static str,
    count: usize,
) -> Step<()> {
    if answers.is_empty() {
        return Err(failure);
    }
    let error = failure.answer(operation);
    while answers.len() < count {
        answers.push(Err(repeated(&error, operation)));
    }
    Ok(())
}

#[async_trait]
impl Transactions for MongoStorage {
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        self.coordination.calls.check_open()?;
        let turns = self.coordination.take_turns(transactions::published(&operations)).await?;
        let commit = |base: Coordination| async move {
            let _turns = turns;
            base.transact(&[operations], None).await
        };
        let ran = self.coordination.run("commit", Access::Write, commit).await?;
        ran.map(|run| run.applied)
    }

    fn interactive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        self.coordination.calls.check_open()?;
        Ok(Box::new(ReplayedTransaction::new(Arc::new(self.coordination.clone()))))
    }
}

#[async_trait]
impl Ledger for MongoStorage {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        let read = |base: Coordination| async move { ledger::mutation(&base.db, &scope).await };
        self.coordination.run("mutation", Access::Read, read).await
    }

    async fn prune(&self, params: PruneParams) -> Result<Pruned> {
        let prune = |base: Coordination| async move { ledger::prune(&base.db, params).await };
        self.coordination.run("prune", Access::Write, prune).await
    }
}

#[async_trait]
impl Replay for Coordination {
    async fn run(&self, calls: Vec<Vec<Operation>>, then: Then) -> Result<Run, Rejected> {
        let access = transactions::access(Some(&then));
        let replay = |base: Self| async move { base.transact(&calls, Some(&then)).await };
        Coordination::run(self, "transaction", access, replay).await?
    }

    fn turns(&self) -> &StreamTurns {
        &self.turns
    }
}
