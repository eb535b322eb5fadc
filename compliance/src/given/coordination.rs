//! Scene words of coordination.

use super::{BYTES_MAX, id, name};
use crate::Random;
use bytes::Bytes;
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, ConsumerName, EventKey, HeldLock, Hold, ListRecords,
    LockName, Locks, NewEvent, Operation, OwnerName, ReadFrom, ReadParams, Record, RecordKey,
    RecordName, RecordPage, RecordSpace, Records, Rejected, Result, SaveOffset, Signals, Storage,
    StorageError, StreamEvent, StreamName, Streams, TaskId, Topic, Transaction, Transactions,
    TrimParams, TryLock, Wake, Wakes,
};
use std::time::Duration;

/// Longer than any wake takes on however slow a machine: one that has not come is lost.
const LOST: Duration = Duration::from_secs(60);

fn some(kind: &str) -> String {
    format!("{kind}-{:016x}", Random::any_seed())
}

/// The faculties, which the story needs.
pub(crate) fn signals(store: &dyn Storage) -> &dyn Signals {
    store.signals().expect("signals")
}

pub(crate) fn streams(store: &dyn Storage) -> &dyn Streams {
    store.streams().expect("streams")
}

pub(crate) fn locks(store: &dyn Storage) -> &dyn Locks {
    store.locks().expect("locks")
}

pub(crate) fn records(store: &dyn Storage) -> &dyn Records {
    store.records().expect("records")
}

pub(crate) fn transactions(store: &dyn Storage) -> &dyn Transactions {
    store.transactions().expect("transactions")
}

/// Names that nobody else uses.
pub(crate) fn some_channel() -> ChannelName {
    channel(&some("channel"))
}

pub(crate) fn some_stream() -> StreamName {
    stream(&some("stream"))
}

pub(crate) fn some_lock() -> LockName {
    lock(&some("lock"))
}

pub(crate) fn some_key() -> RecordName {
    record_name(&some("record"))
}

/// Names that the story knows to be ones.
pub(crate) fn channel(text: &str) -> ChannelName {
    ChannelName::new(text).expect("a channel")
}

pub(crate) fn stream(text: &str) -> StreamName {
    StreamName::new(text).expect("a stream")
}

pub(crate) fn consumer(text: &str) -> ConsumerName {
    ConsumerName::new(text).expect("a consumer")
}

pub(crate) fn lock(text: &str) -> LockName {
    LockName::new(text).expect("a lock")
}

pub(crate) fn owner(text: &str) -> OwnerName {
    OwnerName::new(text).expect("an owner")
}

pub(crate) fn record_name(text: &str) -> RecordName {
    RecordName::new(text).expect("a key")
}

/// A caller's record.
pub(crate) fn key(name: &RecordName) -> RecordKey {
    RecordKey { space: RecordSpace::Caller, name: name.clone() }
}

/// An event without a key.
pub(crate) fn event(stream: &StreamName, payload: impl Into<Bytes>) -> NewEvent {
    NewEvent { stream: stream.clone(), key: None, payload: payload.into() }
}

/// An event with one.
pub(crate) fn keyed(stream: &StreamName, key: &str, payload: impl Into<Bytes>) -> NewEvent {
    let key = Some(EventKey::new(key).expect("a key"));
    NewEvent { key, ..event(stream, payload) }
}

/// Publishes events, and answers their offsets.
pub(crate) async fn publish(store: &dyn Storage, events: Vec<NewEvent>) -> Vec<i64> {
    let count = events.len();
    let answers = streams(store).publish(events).await.expect("publish");
    assert_eq!(answers.len(), count, "one answer for each event");
    answers.into_iter().map(|answer| answer.expect("an offset")).collect()
}

/// Publishes an event whose payload is this text.
pub(crate) async fn publish_text(store: &dyn Storage, stream: &StreamName, text: &str) -> i64 {
    publish(store, vec![event(stream, text.to_owned())]).await.remove(0)
}

/// A read of as much as comes, after this offset.
pub(crate) fn read_params(stream: &StreamName, after: i64) -> ReadParams {
    let from = ReadFrom::Offset(after);
    ReadParams { stream: stream.clone(), from, limit: 1000, bytes_max: BYTES_MAX }
}

/// What is there after this offset.
pub(crate) async fn read_after(
    store: &dyn Storage,
    stream: &StreamName,
    after: i64,
) -> Vec<StreamEvent> {
    let mut found: Vec<StreamEvent> = Vec::new();
    loop {
        let after = found.last().map_or(after, |event| event.offset);
        let page = streams(store).read(read_params(stream, after)).await.expect("read");
        if page.is_empty() {
            return found;
        }
        found.extend(page);
    }
}

/// Everything of a stream.
pub(crate) async fn read_all(store: &dyn Storage, stream: &StreamName) -> Vec<StreamEvent> {
    read_after(store, stream, 0).await
}

/// The offsets of events.
pub(crate) fn offsets(events: &[StreamEvent]) -> Vec<i64> {
    events.iter().map(|event| event.offset).collect()
}

/// The payloads of events, as text.
pub(crate) fn texts(events: &[StreamEvent]) -> Vec<String> {
    events.iter().map(|event| String::from_utf8_lossy(&event.payload).into_owned()).collect()
}

/// A checkpoint.
pub(crate) fn save(stream: &StreamName, consumer: &ConsumerName, offset: i64) -> SaveOffset {
    SaveOffset { stream: stream.clone(), consumer: consumer.clone(), offset }
}

/// Saves an offset, and answers what is saved.
pub(crate) async fn save_offset(
    store: &dyn Storage,
    stream: &StreamName,
    consumer: &ConsumerName,
    offset: i64,
) -> i64 {
    let saves = vec![save(stream, consumer, offset)];
    let mut answers = streams(store).save_offsets(saves).await.expect("save_offsets");
    assert_eq!(answers.len(), 1, "one answer for one save");
    answers.remove(0).expect("a saved offset")
}

/// What is saved.
pub(crate) async fn offset(
    store: &dyn Storage,
    stream: &StreamName,
    consumer: &ConsumerName,
) -> i64 {
    streams(store).offset(stream.clone(), consumer.clone()).await.expect("offset")
}

/// Trims, in as many steps as it takes, and answers how many events went.
pub(crate) async fn trim(store: &dyn Storage, stream: &StreamName, horizon: i64) -> u64 {
    let mut count = 0;
    loop {
        let params = TrimParams { stream: stream.clone(), horizon, limit: 1000 };
        let step = streams(store).trim(params).await.expect("trim");
        count += step.count;
        if !step.more {
            return count;
        }
    }
}

/// Wakes of these topics.
pub(crate) async fn listen(store: &dyn Storage, topics: &[Topic]) -> Wakes {
    signals(store).listen(topics.to_vec()).await.expect("listen")
}

/// Waits until the topic has news, whatever else is heard of.
pub(crate) async fn hear(wakes: &mut Wakes, topic: &Topic) {
    use futures::StreamExt as _;
    let heard = async {
        loop {
            match wakes.next().await.expect("wakes go on") {
                Wake::News(news) if news == *topic => return,
                Wake::Reconnected => return,
                Wake::News(_) => {}
            }
        }
    };
    tokio::time::timeout(LOST, heard).await.expect("a wake was lost");
}

/// Tries to get a lock.
pub(crate) async fn try_lock(
    store: &dyn Storage,
    name: &LockName,
    owner: &OwnerName,
    ttl: Duration,
) -> Option<HeldLock> {
    let params = TryLock { name: name.clone(), owner: owner.clone(), ttl };
    locks(store).try_lock(params).await.expect("try_lock")
}

/// Any hold of this owner.
pub(crate) fn any_hold(name: &LockName, owner: &OwnerName) -> Hold {
    Hold { name: name.clone(), owner: owner.clone(), generation: None }
}

/// This hold.
pub(crate) fn hold(name: &LockName, held: &HeldLock) -> Hold {
    Hold { generation: Some(held.generation), ..any_hold(name, &held.owner) }
}

pub(crate) async fn renew(store: &dyn Storage, hold: Hold, ttl: Duration) -> Option<HeldLock> {
    locks(store).renew_lock(hold, ttl).await.expect("renew_lock")
}

pub(crate) async fn release(store: &dyn Storage, hold: Hold) -> bool {
    locks(store).release_lock(hold).await.expect("release_lock")
}

pub(crate) async fn get_lock(store: &dyn Storage, name: &LockName) -> Option<HeldLock> {
    locks(store).get_lock(name.clone()).await.expect("get_lock")
}

/// A change of a caller's record.
pub(crate) fn set(name: &RecordName, expected: i64, value: impl Into<Bytes>) -> CompareAndSet {
    let value = Some(value.into());
    CompareAndSet { key: key(name), value, expected_revision: expected }
}

/// Its removal.
pub(crate) fn unset(name: &RecordName, expected: i64) -> CompareAndSet {
    CompareAndSet { key: key(name), value: None, expected_revision: expected }
}

/// Changes one record.
pub(crate) async fn change(store: &dyn Storage, change: CompareAndSet) -> Result<i64> {
    let answers = records(store).compare_and_set(vec![change]).await;
    let mut answers = answers.expect("compare_and_set");
    assert_eq!(answers.len(), 1, "one answer for one change");
    answers.remove(0)
}

/// A caller's record, if it is there.
pub(crate) async fn get_record(store: &dyn Storage, name: &RecordName) -> Option<Record> {
    records(store).get_record(key(name)).await.expect("get_record")
}

/// A page of records whose keys start so.
pub(crate) fn record_params(prefix: &str, limit: u32) -> ListRecords {
    let (space, prefix) = (RecordSpace::Caller, prefix.to_owned());
    ListRecords { space, prefix, position: None, limit, bytes_max: BYTES_MAX }
}

pub(crate) async fn list_records(store: &dyn Storage, params: ListRecords) -> RecordPage {
    records(store).list_records(params).await.expect("list_records")
}

/// Whether this is the answer to a change that expected another revision.
pub(crate) fn is_conflict<T>(answer: &Result<T>) -> bool {
    matches!(answer, Err(StorageError::CasConflict { .. }))
}

/// Applies operations as one.
pub(crate) async fn commit(
    store: &dyn Storage,
    operations: Vec<Operation>,
) -> Result<Vec<Applied>, Rejected> {
    transactions(store).commit(operations).await
}

/// Begins an interactive transaction. Where as many are open as may be, those of other cases, it waits
/// for one to end.
pub(crate) async fn begin(store: &dyn Storage) -> Box<dyn Transaction> {
    for _ in 0..2000 {
        match transactions(store).begin().await {
            Err(StorageError::Contention { .. }) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer.expect("begin"),
        }
    }
    panic!("no transaction could begin");
}

/// The story's own of everything that a transaction can write.
#[derive(Debug)]
pub(crate) struct Wares {
    pub(crate) queue: rdq_spi::QueueName,
    pub(crate) task: TaskId,
    pub(crate) cancelled: TaskId,
    pub(crate) stream: StreamName,
    pub(crate) consumer: ConsumerName,
    pub(crate) record: RecordName,
    pub(crate) removed: RecordName,
    pub(crate) channel: ChannelName,
}

impl Wares {
    /// Nothing of it written yet, but for a task to be cancelled and a record to be removed.
    pub(crate) async fn prepare(store: &dyn Storage) -> Self {
        let queue = super::some_queue();
        let wares = Self {
            task: id(&some("task")),
            cancelled: super::enqueue_one(store, &name(&some("other"))).await,
            queue,
            stream: some_stream(),
            consumer: consumer("reader"),
            record: some_key(),
            removed: some_key(),
            channel: some_channel(),
        };
        assert_eq!(change(store, set(&wares.removed, 0, "there")).await.expect("a record"), 1);
        wares
    }

    /// One operation of each kind, a resolution apart.
    pub(crate) fn operations(&self) -> Vec<Operation> {
        let draft = super::Draft::of(&self.queue).with(|task| task.id = self.task.clone());
        vec![
            Operation::Enqueue(draft.build()),
            Operation::Publish(event(&self.stream, "one")),
            Operation::Publish(keyed(&self.stream, "key", "two")),
            Operation::Notify(self.channel.clone()),
            Operation::SaveOffset(save(&self.stream, &self.consumer, 1)),
            Operation::CompareAndSet(set(&self.record, 0, "value")),
            Operation::CompareAndSet(unset(&self.removed, 1)),
            Operation::Cancel(self.cancelled.clone()),
        ]
    }

    /// Everything is there.
    pub(crate) async fn assert_written(&self, store: &dyn Storage) {
        assert_eq!(super::get(store, &self.task).await.queue, self.queue);
        let events = read_all(store, &self.stream).await;
        assert_eq!(texts(&events), ["one", "two"]);
        assert_eq!(events[1].key.as_ref().map(EventKey::as_str), Some("key"));
        assert_eq!(offset(store, &self.stream, &self.consumer).await, 1);
        let record = get_record(store, &self.record).await.expect("the record");
        assert_eq!((&record.value[..], record.revision), (&b"value"[..], 1));
        assert_eq!(get_record(store, &self.removed).await, None);
        let cancelled = super::get(store, &self.cancelled).await;
        assert_eq!(cancelled.status, rdq_spi::TaskStatus::Cancelled);
    }

    /// Nothing is there.
    pub(crate) async fn assert_untouched(&self, store: &dyn Storage) {
        assert!(super::is_not_found(&store.get(self.task.clone()).await));
        assert_eq!(read_all(store, &self.stream).await, []);
        assert_eq!(offset(store, &self.stream, &self.consumer).await, 0);
        assert_eq!(get_record(store, &self.record).await, None);
        assert_eq!(get_record(store, &self.removed).await.expect("kept").revision, 1);
        let cancelled = super::get(store, &self.cancelled).await;
        assert_eq!(cancelled.status, rdq_spi::TaskStatus::Pending);
    }
}
