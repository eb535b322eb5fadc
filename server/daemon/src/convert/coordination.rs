//! Signals, streams, locks and records.

use super::request::{extent, positive};
use crate::status::Refusal;
use rdq_proto::{
    time,
    v1::{self, read_request::Start},
};
use rdq_spi::{
    ChannelName, CompareAndSet, ConsumerName, EventKey, HeldLock, Hold, LockName, NameError,
    NewEvent, OwnerName, ReadFrom, Record, RecordKey, RecordName, RecordSpace, SaveOffset,
    StreamEvent, StreamName, TryLock,
};
use std::time::Duration;

/// Events of one answer unless the caller says otherwise.
const EVENTS: u32 = 100;
const EVENTS_MAX: u32 = 1_000;

pub(super) fn named<T>(field: &'static str, name: Result<T, NameError>) -> Result<T, Refusal> {
    name.map_err(|error| Refusal::Name { field, error })
}

pub(crate) fn channel(text: &str) -> Result<ChannelName, Refusal> {
    named("channel", ChannelName::new(text))
}

pub(crate) fn stream(text: &str) -> Result<StreamName, Refusal> {
    named("stream", StreamName::new(text))
}

pub(crate) fn consumer(text: &str) -> Result<ConsumerName, Refusal> {
    named("consumer", ConsumerName::new(text))
}

pub(crate) fn new_event(from: v1::PublishRequest) -> Result<NewEvent, Refusal> {
    let key = from.key.map(|key| named("key", EventKey::new(key))).transpose()?;
    Ok(NewEvent { stream: stream(&from.stream)?, key, payload: from.payload })
}

/// What is read, from where on, and how much at most.
pub(crate) fn read(from: v1::ReadRequest) -> Result<(StreamName, ReadFrom, u32), Refusal> {
    let start = match from.start {
        Some(Start::Offset(offset)) => ReadFrom::Offset(offset),
        Some(Start::Consumer(name)) => ReadFrom::Consumer(consumer(&name)?),
        None => {
            let message = "exactly one of `offset` and `consumer` is required";
            return Err(Refusal::invalid("start", message));
        }
    };
    Ok((stream(&from.stream)?, start, extent(from.limit, EVENTS, EVENTS_MAX)))
}

/// Events of one message of a subscription: it has no empty answer that would be one.
pub(crate) fn subscribed_at_once(limit: Option<i32>) -> Result<u32, Refusal> {
    match extent(limit, EVENTS, EVENTS_MAX) {
        0 => Err(Refusal::invalid("limit", "`limit` must be at least 1")),
        limit => Ok(limit),
    }
}

pub(crate) fn save_offset(from: &v1::SaveOffsetRequest) -> Result<SaveOffset, Refusal> {
    let (stream, consumer) = (stream(&from.stream)?, consumer(&from.consumer)?);
    Ok(SaveOffset { stream, consumer, offset: from.offset })
}

pub(crate) fn events(stream: &StreamName, events: Vec<StreamEvent>) -> Vec<v1::StreamEvent> {
    let event = |event: StreamEvent| v1::StreamEvent {
        offset: event.offset,
        stream: stream.as_str().to_owned(),
        key: event.key.map(|key| key.as_str().to_owned()),
        payload: event.payload,
        created_at: Some(time::timestamp(event.created_at.millis())),
    };
    events.into_iter().map(event).collect()
}

pub(crate) fn lock(text: &str) -> Result<LockName, Refusal> {
    named("name", LockName::new(text))
}

fn owner(text: &str) -> Result<OwnerName, Refusal> {
    named("owner", OwnerName::new(text))
}

pub(crate) fn ttl(value: Option<&prost_types::Duration>) -> Result<Duration, Refusal> {
    let missing = || Refusal::invalid("ttl", "`ttl` is required");
    positive("ttl", value.ok_or_else(missing)?)
}

pub(crate) fn try_lock(from: &v1::TryLockRequest) -> Result<TryLock, Refusal> {
    let (name, owner) = (lock(&from.name)?, owner(&from.owner)?);
    Ok(TryLock { name, owner, ttl: ttl(from.ttl.as_ref())? })
}

pub(crate) fn hold(name: &str, by: &str, generation: Option<i64>) -> Result<Hold, Refusal> {
    Ok(Hold { name: lock(name)?, owner: owner(by)?, generation })
}

pub(crate) fn try_lock_response(held: Option<&HeldLock>) -> v1::TryLockResponse {
    v1::TryLockResponse {
        acquired: held.is_some(),
        generation: held.map_or(0, |held| held.generation),
        expires_at: held.map(expires_at),
        remaining: held.map(remaining),
    }
}

pub(crate) fn renew_response(held: Option<&HeldLock>) -> v1::RenewResponse {
    v1::RenewResponse {
        renewed: held.is_some(),
        generation: held.map_or(0, |held| held.generation),
        expires_at: held.map(expires_at),
        remaining: held.map(remaining),
    }
}

pub(crate) fn get_lock_response(held: Option<&HeldLock>) -> v1::GetLockResponse {
    v1::GetLockResponse {
        held: held.is_some(),
        owner: held.map_or_else(String::new, |held| held.owner.as_str().to_owned()),
        generation: held.map_or(0, |held| held.generation),
        expires_at: held.map(expires_at),
        remaining: held.map(remaining),
    }
}

fn expires_at(held: &HeldLock) -> prost_types::Timestamp {
    time::timestamp(held.expires_at.millis())
}

fn remaining(held: &HeldLock) -> prost_types::Duration {
    time::duration(held.remaining)
}

pub(crate) fn record_name(text: &str) -> Result<RecordName, Refusal> {
    named("key", RecordName::new(text))
}

/// The beginning of a key: what no key begins with is refused.
pub(crate) fn record_prefix(text: String) -> Result<String, Refusal> {
    if text.is_empty() {
        return Ok(text);
    }
    match RecordName::new(&text) {
        // A key may begin with white space.
        Err(NameError::Blank) => named("prefix", RecordName::new(format!("{text}x")))?,
        other => named("prefix", other)?,
    };
    Ok(text)
}

fn change(
    key: &str,
    value: Option<bytes::Bytes>,
    expected_revision: i64,
) -> Result<CompareAndSet, Refusal> {
    let key = RecordKey { space: RecordSpace::Caller, name: record_name(key)? };
    Ok(CompareAndSet { key, value, expected_revision })
}

pub(crate) fn compare_and_set(from: v1::CompareAndSetRequest) -> Result<CompareAndSet, Refusal> {
    change(&from.key, Some(from.value), from.expected_revision)
}

pub(crate) fn delete_record(from: &v1::DeleteRecordRequest) -> Result<CompareAndSet, Refusal> {
    change(&from.key, None, from.expected_revision)
}

pub(crate) fn record(record: Record) -> v1::Record {
    v1::Record {
        key: record.name.into(),
        value: record.value,
        revision: record.revision,
        updated_at: Some(time::timestamp(record.updated_at.millis())),
    }
}
