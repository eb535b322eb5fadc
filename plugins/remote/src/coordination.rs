//! The faculties beside tasks: one method per operation, each over its RPC. What the wire has one by
//! one is called one by one, in order where the order can matter.

use crate::{
    client::{Client, answer, request},
    convert::{self, Change},
    errors::{Failure, Operation},
    pages::PAGE_MAX,
    storage::RemoteStorage,
    wakes::wakes,
};
use async_trait::async_trait;
use futures::{StreamExt as _, stream};
use rdq_proto::v1;
use rdq_spi::{
    ChannelName, CompareAndSet, ConsumerName, HeldLock, Hold, ListRecords, LockName, Locks,
    NewEvent, OwnerName, Position, ReadParams, Record, RecordKey, RecordPage, Records, Result,
    SaveOffset, Signals, StreamEvent, StreamName, Streams, Topic, TrimParams, Trimmed, TryLock,
    Wakes,
};
use std::{collections::HashMap, hash::Hash, time::Duration};

/// Single calls under way at once for one batch.
const CALLS_AT_ONCE: usize = 32;

/// Calls for each item, many at once; those of one key one after the other, in their order.
async fn each_in_order<I, K: Hash + Eq, T, F: Future<Output = Result<T>>>(
    client: &Client,
    items: Vec<I>,
    key: impl Fn(&I) -> K,
    call: impl Fn(Client, I) -> F,
) -> Vec<Result<T>> {
    let mut lanes: Vec<Vec<(usize, I)>> = Vec::new();
    let mut lane_of: HashMap<K, usize> = HashMap::new();
    for (index, item) in items.into_iter().enumerate() {
        let lane = *lane_of.entry(key(&item)).or_insert_with(|| {
            lanes.push(Vec::new());
            lanes.len() - 1
        });
        lanes[lane].push((index, item));
    }
    let call = &call;
    let calls = lanes.into_iter().map(|lane| async move {
        let mut answers = Vec::with_capacity(lane.len());
        for (index, item) in lane {
            answers.push((index, call(client.clone(), item).await));
        }
        answers
    });
    let calls: Vec<_> = calls.collect();
    let answers: Vec<_> = stream::iter(calls).buffer_unordered(CALLS_AT_ONCE).collect().await;
    let mut answers: Vec<_> = answers.into_iter().flatten().collect();
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn notify(mut client: Client, channel: ChannelName) -> Result<()> {
    let notify = Operation::changing("notify");
    let asked = v1::NotifyRequest { channel: channel.into(), ..v1::NotifyRequest::default() };
    let done = answer(async move { client.signals.notify(request(asked)).await }).await;
    done.map(drop).map_err(|failure| failure.error(notify, None))
}

#[async_trait]
impl Signals for RemoteStorage {
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()> {
        let client = self.client()?;
        let answers = each_in_order(&client, channels, Clone::clone, notify).await;
        answers.into_iter().collect()
    }

    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes> {
        let listen = Operation::reading("listen");
        let wakes = wakes(&self.client()?, topics, self.closed()).await;
        wakes.map_err(|failure| failure.error(listen, None))
    }
}

async fn publish(mut client: Client, event: NewEvent) -> Result<i64> {
    let publish = Operation::changing("publish");
    let asked = request(convert::publish_request(event));
    let response = answer(async move { client.streams.publish(asked).await }).await;
    Ok(response.map_err(|failure| failure.error(publish, None))?.offset)
}

async fn save_offset(mut client: Client, save: SaveOffset) -> Result<i64> {
    let save_offsets = Operation::changing("save_offsets");
    let asked = request(convert::save_offset_request(save));
    let response = answer(async move { client.streams.save_offset(asked).await }).await;
    Ok(response.map_err(|failure| failure.error(save_offsets, None))?.offset)
}

#[async_trait]
impl Streams for RemoteStorage {
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>> {
        let stream = |event: &NewEvent| event.stream.clone();
        Ok(each_in_order(&self.client()?, events, stream, publish).await)
    }

    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>> {
        let read = Operation::reading("read");
        let mut client = self.client()?;
        let asked = request(convert::read_request(&params));
        let response = answer(async move { client.streams.read(asked).await }).await;
        let response = response.map_err(|failure| failure.error(read, None))?;
        let events = convert::events(response.events, params.bytes_max);
        events.map_err(|broken| read.broken(broken))
    }

    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>> {
        let key = |save: &SaveOffset| (save.stream.clone(), save.consumer.clone());
        Ok(each_in_order(&self.client()?, offsets, key, save_offset).await)
    }

    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64> {
        let offset = Operation::reading("offset");
        let mut client = self.client()?;
        let asked = v1::GetOffsetRequest { stream: stream.into(), consumer: consumer.into() };
        let response = answer(async move { client.streams.get_offset(request(asked)).await }).await;
        Ok(response.map_err(|failure| failure.error(offset, None))?.offset)
    }

    async fn trim(&self, params: TrimParams) -> Result<Trimmed> {
        let trim = Operation::changing("trim");
        let mut client = self.client()?;
        let asked = v1::TrimRequest { stream: params.stream.into(), horizon: params.horizon };
        let response = answer(async move { client.streams.trim(request(asked)).await }).await;
        let response = response.map_err(|failure| failure.error(trim, None))?;
        // One call is the whole trim.
        Ok(Trimmed { count: u64::try_from(response.count).unwrap_or(0), more: false })
    }
}

#[async_trait]
impl Locks for RemoteStorage {
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>> {
        let try_lock = Operation::changing("try_lock");
        let mut client = self.client()?;
        let owner = params.owner.clone();
        let asked = request(convert::try_lock_request(params));
        let response = answer(async move { client.locks.try_lock(asked).await }).await;
        let it = response.map_err(|failure| failure.error(try_lock, None))?;
        let held = it.acquired.then(|| {
            convert::held_lock(owner, it.generation, it.expires_at.as_ref(), it.remaining.as_ref())
        });
        held.transpose().map_err(|broken| try_lock.broken(broken))
    }

    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>> {
        let renew = Operation::changing("renew_lock");
        let mut client = self.client()?;
        let owner = hold.owner.clone();
        let asked = request(convert::renew_request(hold, ttl));
        let response = answer(async move { client.locks.renew(asked).await }).await;
        let it = response.map_err(|failure| failure.error(renew, None))?;
        let held = it.renewed.then(|| {
            convert::held_lock(owner, it.generation, it.expires_at.as_ref(), it.remaining.as_ref())
        });
        held.transpose().map_err(|broken| renew.broken(broken))
    }

    async fn release_lock(&self, hold: Hold) -> Result<bool> {
        let release = Operation::changing("release_lock");
        let mut client = self.client()?;
        let asked = request(convert::release_request(hold));
        let response = answer(async move { client.locks.release(asked).await }).await;
        Ok(response.map_err(|failure| failure.error(release, None))?.released)
    }

    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>> {
        let get_lock = Operation::reading("get_lock");
        let mut client = self.client()?;
        let asked = request(v1::GetLockRequest { name: name.into() });
        let response = answer(async move { client.locks.get_lock(asked).await }).await;
        let it = response.map_err(|failure| failure.error(get_lock, None))?;
        let held = it.held.then(|| {
            let owner = OwnerName::stored(it.owner.as_str());
            convert::held_lock(owner, it.generation, it.expires_at.as_ref(), it.remaining.as_ref())
        });
        held.transpose().map_err(|broken| get_lock.broken(broken))
    }
}

async fn change(client: Client, change: CompareAndSet) -> Result<i64> {
    let operation = Operation::changing("compare_and_set");
    let expected = change.expected_revision;
    let mut records = client.records;
    let revision = match convert::change(change)? {
        Change::Set(asked) => {
            let set = answer(async move { records.compare_and_set(request(asked)).await }).await;
            set.map(|response| response.revision)
        }
        Change::Delete(asked) => {
            let gone = answer(async move { records.delete_record(request(asked)).await }).await;
            // A removal answers the last revision: the one that it expected.
            gone.map(|_| expected)
        }
    };
    revision.map_err(|failure: Failure| failure.error(operation, None))
}

#[async_trait]
impl Records for RemoteStorage {
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>> {
        let get_record = Operation::reading("get_record");
        convert::caller_only(key.space, get_record.name)?;
        let mut client = self.client()?;
        let asked = request(v1::GetRecordRequest { key: key.name.into() });
        let response = answer(async move { client.records.get_record(asked).await }).await;
        let record = match response {
            Ok(response) => response.record.map(convert::record).transpose(),
            Err(failure) if failure.is_not_found() => return Ok(None),
            Err(failure) => return Err(failure.error(get_record, None)),
        };
        record.map_err(|broken| get_record.broken(broken))
    }

    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>> {
        let key = |change: &CompareAndSet| change.key.clone();
        Ok(each_in_order(&self.client()?, changes, key, change).await)
    }

    async fn list_records(&self, params: ListRecords) -> Result<RecordPage> {
        let list = Operation::reading("list_records");
        convert::caller_only(params.space, list.name)?;
        let client = self.client()?;
        let mut page_size = params.limit.min(PAGE_MAX);
        loop {
            let asked = v1::ListRecordsRequest {
                prefix: params.prefix.clone(),
                page_size: i32::try_from(page_size).ok(),
                page_token: convert::page_token(params.position.as_ref())?,
            };
            let mut records = client.records.clone();
            let response = answer(async move { records.list_records(request(asked)).await }).await;
            let response = response.map_err(|failure| failure.error(list, None))?;
            let records = response.records.into_iter().map(convert::record);
            let records: Vec<_> =
                records.collect::<Result<_, _>>().map_err(|broken| list.broken(broken))?;
            let fitting = fitting(&records, params.bytes_max);
            if fitting < records.len() {
                // Only the server can say where the rest begins.
                page_size = u32::try_from(fitting).unwrap_or(PAGE_MAX);
                continue;
            }
            let token = response.next_page_token;
            let next = (!token.is_empty()).then(|| Position(token.into()));
            return Ok(RecordPage { records, next });
        }
    }
}

/// How many of these fit, the first in any case.
fn fitting(records: &[Record], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fitting = records.iter().enumerate().take_while(|(index, record)| {
        bytes += record.name.as_str().len() + record.value.len();
        *index == 0 || bytes <= bytes_max
    });
    fitting.count()
}
