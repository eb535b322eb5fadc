//! The memory plugin's faculties beside tasks, with the mistake on their way in or out.

use super::{Fault, storage::Faulty};
use async_trait::async_trait;
use futures::StreamExt as _;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, EventKey, HeldLock, Hold, ListRecords,
    LockName, Locks, NewEvent, Operation, ReadParams, Record, RecordKey, RecordPage, Records,
    Rejected, Result, SaveOffset, Signals, Storage, StorageError, StreamEvent, StreamName, Streams,
    Task, TaskId, Topic, Transaction, Transactions, TrimParams, Trimmed, TryLock, Wakes,
};
use std::{sync::Arc, time::Duration};

impl Faulty {
    fn sound_signals(&self) -> &dyn Signals {
        self.store.signals().expect("signals")
    }

    fn sound_streams(&self) -> &dyn Streams {
        self.store.streams().expect("streams")
    }

    fn sound_locks(&self) -> &dyn Locks {
        self.store.locks().expect("locks")
    }

    fn sound_records(&self) -> &dyn Records {
        self.store.records().expect("records")
    }

    pub(super) fn sound_transactions(&self) -> &dyn Transactions {
        self.store.transactions().expect("transactions")
    }
}

#[async_trait]
impl Signals for Faulty {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        self.sound_signals().notify(channels).await
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        let wakes = self.sound_signals().listen(topics).await?;
        if self.is(Fault::WakesLost) {
            return Ok(wakes.filter(|_| futures::future::ready(false)).boxed());
        }
        Ok(wakes)
    }
}

#[async_trait]
impl Streams for Faulty {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        let streams: Vec<_> = events.iter().map(|event| event.stream.clone()).collect();
        let answers = self.sound_streams().publish(events).await?;
        if !self.is(Fault::OffsetsCountWhatIsThere) {
            return Ok(answers);
        }
        let mut counts = Vec::new();
        for stream in streams {
            let from = rdq_spi::ReadFrom::Offset(0);
            let all = ReadParams { stream, from, limit: u32::MAX, bytes_max: usize::MAX };
            let count = self.sound_streams().read(all).await?.len();
            counts.push(Ok(i64::try_from(count).expect("few")));
        }
        Ok(counts)
    }

    async fn read(&self, mut params: ReadParams) -> Result<Vec<StreamEvent>> {
        if self.is(Fault::ReadsUnbounded) {
            (params.limit, params.bytes_max) = (u32::MAX, usize::MAX);
        }
        let mut events = self.sound_streams().read(params).await?;
        if self.is(Fault::EventsAppearLate) {
            let mut memo = self.memo();
            let is_late = |event: &StreamEvent| event.offset % 7 == 3;
            events.retain(|event| !is_late(event) || !memo.late.insert(event.offset));
        }
        if self.is(Fault::KeysAlwaysSet) {
            for event in &mut events {
                event.key.get_or_insert_with(|| EventKey::stored(""));
            }
        }
        Ok(events)
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        if self.is(Fault::SavesGoBack) {
            let mut memo = self.memo();
            for save in &offsets {
                memo.saved.insert((save.stream.clone(), save.consumer.clone()), save.offset);
            }
            return Ok(offsets.iter().map(|save| Ok(save.offset)).collect());
        }
        self.sound_streams().save_offsets(offsets).await
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        if self.is(Fault::SavesGoBack) {
            return Ok(self.memo().saved.get(&(stream, consumer)).copied().unwrap_or(0));
        }
        self.sound_streams().offset(stream, consumer).await
    }

    async fn trim(&self, mut params: TrimParams) -> Result<Trimmed> {
        match self.fault {
            Fault::TrimStopsShort => params.horizon = params.horizon.saturating_sub(1),
            Fault::StepsUnbounded => params.limit = u32::MAX,
            _ => {}
        }
        self.sound_streams().trim(params).await
    }
}

#[async_trait]
impl Locks for Faulty {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        let TryLock { name, owner, ttl } = params.clone();
        let held = self.sound_locks().try_lock(params).await?;
        match (self.fault, &held) {
            (Fault::LocksShared, None) => self.sound_locks().get_lock(name).await,
            (Fault::TryingRenews, Some(_)) => {
                let hold = Hold { name, owner, generation: None };
                self.sound_locks().renew_lock(hold, ttl).await
            }
            (Fault::LockGenerationsRestart, Some(_)) => {
                Ok(held.map(|held| HeldLock { generation: 1, ..held }))
            }
            _ => Ok(held),
        }
    }

    async fn renew_lock(&self, mut hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        if self.is(Fault::HoldsNotToldApart) {
            hold.generation = None;
        }
        let renewed = self.sound_locks().renew_lock(hold.clone(), ttl).await?;
        if renewed.is_none() && self.is(Fault::LapsedHoldsRenewed) {
            let params = TryLock { name: hold.name, owner: hold.owner, ttl };
            return self.sound_locks().try_lock(params).await;
        }
        Ok(renewed)
    }

    async fn release_lock(&self, mut hold: Hold) -> Result<bool> {
        match self.fault {
            Fault::HoldsNotToldApart => hold.generation = None,
            Fault::AnybodyReleases => {
                if let Some(held) = self.sound_locks().get_lock(hold.name.clone()).await? {
                    hold.owner = held.owner;
                }
            }
            _ => {}
        }
        self.sound_locks().release_lock(hold).await
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        self.sound_locks().get_lock(name).await
    }
}

#[async_trait]
impl Records for Faulty {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        self.sound_records().get_record(key).await
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        let mut answers = Vec::new();
        for mut change in changes {
            if self.is(Fault::RevisionsIgnored) {
                let record = self.sound_records().get_record(change.key.clone()).await?;
                change.expected_revision = record.map_or(0, |record| record.revision);
            }
            let is_new = change.expected_revision == 0;
            let answer = self.sound_records().compare_and_set(vec![change]).await?.remove(0);
            let restarts = self.is(Fault::RevisionsRestart) && is_new && answer.is_ok();
            answers.push(if restarts { Ok(1) } else { answer });
        }
        Ok(answers)
    }

    async fn list_records(&self, mut params: ListRecords) -> Result<RecordPage> {
        match self.fault {
            Fault::PrefixesIgnored => params.prefix.clear(),
            Fault::AnyPositionWillDo => {
                let sound = self.sound_records().list_records(params.clone()).await;
                if !matches!(sound, Err(StorageError::InvalidPosition)) {
                    return sound;
                }
                params.position = None;
            }
            Fault::PageAdmitsNewer if params.position.is_some() => {
                // From the beginning, as of now, and beyond what the page before ended with.
                let edge = self.memo().last_record.clone();
                let all = ListRecords { position: None, limit: u32::MAX, ..params };
                let mut page = self.sound_records().list_records(all).await?;
                page.records.retain(|record| Some(&record.name) > edge.as_ref());
                return Ok(page);
            }
            _ => {}
        }
        let page = self.sound_records().list_records(params).await?;
        self.memo().last_record = page.records.last().map(|record| record.name.clone());
        Ok(page)
    }
}

#[async_trait]
impl Transactions for Faulty {
    async fn commit(&self, mut operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        let sound = self.sound_transactions();
        match self.fault {
            Fault::CommitsInParts => {
                let mut applied = Vec::new();
                for (index, operation) in operations.into_iter().enumerate() {
                    tokio::task::yield_now().await;
                    let answer = sound.commit(vec![operation]).await;
                    let answer =
                        answer.map_err(|rejected| Rejected { index: Some(index), ..rejected })?;
                    applied.extend(answer);
                }
                Ok(applied)
            }
            Fault::CommitsDoNotNotify => {
                operations.retain(|operation| !matches!(operation, Operation::Notify(_)));
                sound.commit(operations).await
            }
            _ => self.commit_observing(operations).await,
        }
    }

    fn interactive(&self) -> bool {
        true
    }

    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        let sound = Some(self.sound_transactions().begin().await?);
        let (store, fault) = (self.store.clone(), self.fault);
        Ok(Box::new(FaultyTransaction { sound, store, fault }))
    }
}

#[derive(Debug)]
struct FaultyTransaction {
    sound: Option<Box<dyn Transaction>>,
    store: Arc<dyn Storage>,
    fault: Fault,
}

impl FaultyTransaction {
    fn sound(&mut self) -> &mut dyn Transaction {
        &mut **self.sound.as_mut().expect("it is not over")
    }
}

#[async_trait]
impl Transaction for FaultyTransaction {
    async fn apply(&mut self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected> {
        match self.fault {
            Fault::OpenTransactionsLeak => {
                self.store.transactions().expect("transactions").commit(operations).await
            }
            Fault::RefusalsLeaveAPart => {
                let mut applied = Vec::new();
                for (index, operation) in operations.into_iter().enumerate() {
                    let answer = self.sound().apply(vec![operation]).await;
                    let answer =
                        answer.map_err(|rejected| Rejected { index: Some(index), ..rejected })?;
                    applied.extend(answer);
                }
                Ok(applied)
            }
            _ => self.sound().apply(operations).await,
        }
    }

    async fn get(&mut self, task: TaskId) -> Result<Task> {
        if self.fault == Fault::OwnWritesUnseen {
            return self.store.get(task).await;
        }
        self.sound().get(task).await
    }

    async fn read(&mut self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        self.sound().read(params).await
    }

    async fn offset(&mut self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        self.sound().offset(stream, consumer).await
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        self.sound.take().expect("it is not over").commit().await
    }

    async fn rollback(mut self: Box<Self>) -> Result<()> {
        let sound = self.sound.take().expect("it is not over");
        if self.fault == Fault::RollbacksCommit { sound.commit().await } else { Ok(()) }
    }
}
