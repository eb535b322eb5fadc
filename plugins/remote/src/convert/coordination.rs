//! Streams, locks, records and the operations of transactions.

use super::{Broken, claims, tasks};
use rdq_proto::{
    time,
    v1::{
        self, operation::Operation as WireOperation, operation_result::Result as WireResult,
        read_request::Start,
    },
};
use rdq_spi::{
    Applied, CompareAndSet, EventKey, HeldLock, Hold, NewEvent, Operation, OwnerName, ReadFrom,
    ReadParams, Record, RecordName, RecordSpace, Result, SaveOffset, StorageError, StreamEvent,
    Timestamp, TryLock,
};
use std::time::Duration;

pub(crate) fn publish_request(event: NewEvent) -> v1::PublishRequest {
    let key = event.key.map(|key| key.as_str().to_owned());
    v1::PublishRequest { stream: event.stream.into(), key, payload: event.payload }
}

pub(crate) fn read_request(params: &ReadParams) -> v1::ReadRequest {
    v1::ReadRequest {
        stream: params.stream.as_str().to_owned(),
        start: Some(match &params.from {
            ReadFrom::Offset(offset) => Start::Offset(*offset),
            ReadFrom::Consumer(consumer) => Start::Consumer(consumer.as_str().to_owned()),
        }),
        limit: Some(super::on_wire(params.limit)),
    }
}

/// Events within `bytes_max`, the first in any case: the rest is read again.
pub(crate) fn events(
    events: Vec<v1::StreamEvent>,
    bytes_max: usize,
) -> Result<Vec<StreamEvent>, Broken> {
    let mut bytes = 0_usize;
    let fitting = events.into_iter().enumerate().take_while(|(index, event)| {
        bytes += event.payload.len() + event.key.as_ref().map_or(0, String::len);
        *index == 0 || bytes <= bytes_max
    });
    fitting.map(|(_, event)| stream_event(event)).collect()
}

fn stream_event(event: v1::StreamEvent) -> Result<StreamEvent, Broken> {
    Ok(StreamEvent {
        offset: event.offset,
        key: event.key.map(EventKey::stored),
        payload: event.payload,
        created_at: required(event.created_at.as_ref(), "has an event without created_at")?,
    })
}

pub(crate) fn save_offset_request(save: SaveOffset) -> v1::SaveOffsetRequest {
    let SaveOffset { stream, consumer, offset } = save;
    v1::SaveOffsetRequest { stream: stream.into(), consumer: consumer.into(), offset }
}

pub(crate) fn try_lock_request(params: TryLock) -> v1::TryLockRequest {
    let TryLock { name, owner, ttl } = params;
    v1::TryLockRequest { name: name.into(), owner: owner.into(), ttl: Some(time::duration(ttl)) }
}

pub(crate) fn renew_request(hold: Hold, ttl: Duration) -> v1::RenewRequest {
    let Hold { name, owner, generation } = hold;
    let ttl = Some(time::duration(ttl));
    v1::RenewRequest { name: name.into(), owner: owner.into(), generation, ttl }
}

pub(crate) fn release_request(hold: Hold) -> v1::LockServiceReleaseRequest {
    let Hold { name, owner, generation } = hold;
    v1::LockServiceReleaseRequest { name: name.into(), owner: owner.into(), generation }
}

/// A lock that somebody holds, from the parts that every answer has of it.
pub(crate) fn held_lock(
    owner: OwnerName,
    generation: i64,
    expires_at: Option<&prost_types::Timestamp>,
    remaining: Option<&prost_types::Duration>,
) -> Result<HeldLock, Broken> {
    let missing = "has a held lock without its end";
    let remaining = remaining.and_then(time::at_least_zero).ok_or(Broken(missing))?;
    Ok(HeldLock { owner, generation, expires_at: required(expires_at, missing)?, remaining })
}

pub(super) fn required(
    at: Option<&prost_types::Timestamp>,
    missing: &'static str,
) -> Result<Timestamp, Broken> {
    tasks::moment(at)?.ok_or(Broken(missing))
}

/// A change as one of the two calls that make it.
pub(crate) enum Change {
    Set(v1::CompareAndSetRequest),
    Delete(v1::DeleteRecordRequest),
}

pub(crate) fn change(change: CompareAndSet) -> Result<Change> {
    caller_only(change.key.space, "compare_and_set")?;
    let (key, expected_revision) = (change.key.name.into(), change.expected_revision);
    Ok(match change.value {
        Some(value) => Change::Set(v1::CompareAndSetRequest { key, value, expected_revision }),
        None => Change::Delete(v1::DeleteRecordRequest { key, expected_revision }),
    })
}

/// The wire has the callers' records alone.
pub(crate) fn caller_only(space: RecordSpace, operation: &'static str) -> Result<()> {
    match space {
        RecordSpace::Caller => Ok(()),
        RecordSpace::Schedules => Err(StorageError::Unsupported { operation }),
    }
}

pub(crate) fn record(record: v1::Record) -> Result<Record, Broken> {
    Ok(Record {
        name: RecordName::stored(record.key),
        value: record.value,
        revision: record.revision,
        updated_at: required(record.updated_at.as_ref(), "has a record without updated_at")?,
    })
}

pub(crate) fn operation(operation: Operation) -> Result<v1::Operation> {
    let operation = match operation {
        Operation::Enqueue(task) => {
            WireOperation::Enqueue(v1::EnqueueRequest { task: tasks::new_task(task)? })
        }
        Operation::Publish(event) => WireOperation::Publish(publish_request(event)),
        Operation::Notify(channel) => WireOperation::Notify(v1::NotifyRequest {
            channel: channel.into(),
            ..v1::NotifyRequest::default()
        }),
        Operation::SaveOffset(save) => WireOperation::SaveOffset(save_offset_request(save)),
        Operation::CompareAndSet(set) => match change(set)? {
            Change::Set(request) => WireOperation::CompareAndSet(request),
            Change::Delete(request) => WireOperation::DeleteRecord(request),
        },
        Operation::Cancel(task) => WireOperation::Cancel(v1::CancelRequest { id: task.into() }),
        Operation::Resolve(resolution) => WireOperation::Resolve(claims::resolution(resolution)?),
        // A commit with one is another call; a transaction on the wire has none.
        Operation::Observe(_) => return Err(StorageError::Unsupported { operation: "observe" }),
    };
    Ok(v1::Operation { operation: Some(operation) })
}

/// The answers to these operations.
pub(crate) fn applied(
    operations: &[Operation],
    results: Vec<v1::OperationResult>,
) -> Result<Vec<Applied>, Broken> {
    if results.len() != operations.len() {
        return Err(Broken("does not have a result for each operation"));
    }
    let each = operations.iter().zip(results).map(|(operation, result)| {
        let result = result.result.ok_or(Broken("has an operation without a result"))?;
        Ok(match result {
            WireResult::Enqueue(response) => Applied::Enqueued(tasks::admission(&response)?),
            WireResult::Publish(response) => Applied::Published(response.offset),
            WireResult::Notify(_) => Applied::Notified,
            WireResult::SaveOffset(response) => Applied::OffsetSaved(response.offset),
            WireResult::CompareAndSet(response) => Applied::Recorded(response.revision),
            WireResult::DeleteRecord(_) => match operation {
                // A removal answers the last revision: the one that it expected.
                Operation::CompareAndSet(change) => Applied::Recorded(change.expected_revision),
                _ => return Err(Broken("has a removal where none was asked for")),
            },
            WireResult::Cancel(response) => Applied::Cancelled(claims::cancelled(response)?),
            WireResult::Resolve(resolved) => Applied::Resolved(claims::resolved(&resolved)?),
            WireResult::OutboxEnqueue(_)
            | WireResult::MarkProjected(_)
            | WireResult::ReleaseWithError(_) => {
                return Err(Broken("has a result that nothing asked for"));
            }
        })
    });
    each.collect()
}
