//! What functions of streams take and answer. It decides nothing.

use crate::{
    packing::{NUMBER_MAX, Packer, Unpacker},
    replies::{Reply, next},
    requests::Args,
};
use bytes::Bytes;
use rdq_spi::{
    ConsumerName, EventKey, NewEvent, ReadFrom, ReadParams, SaveOffset, StreamEvent, StreamName,
    TrimParams, Trimmed,
};

/// In place of a key's length: there is none. Keys are not empty.
const NO_KEY: u32 = 0;

/// The two arguments of an event.
pub(super) fn event(event: &NewEvent) -> [Bytes; 2] {
    let NewEvent { stream, key, payload } = event;
    let packed = match key {
        Some(key) => Packer::default().block(key.as_str().as_bytes()),
        None => Packer::default().u32(NO_KEY),
    };
    [Bytes::copy_from_slice(stream.as_str().as_bytes()), packed.raw(payload).done()]
}

pub(super) fn read(params: &ReadParams) -> Args {
    let ReadParams { stream, from, limit, bytes_max } = params;
    let (of_consumer, after, consumer) = match from {
        ReadFrom::Offset(offset) => (false, *offset, ""),
        ReadFrom::Consumer(consumer) => (true, 0, consumer.as_str()),
    };
    let call = Packer::default()
        .flag(of_consumer)
        .i64(after.max(0)) // offsets begin at 1
        .u32(*limit)
        .len(*bytes_max)
        .name(stream.as_str())
        .name(consumer);
    vec![call.done()]
}

/// The offset of the first event, and the events: they have no gaps.
pub(super) fn events(reply: Reply) -> Option<Vec<StreamEvent>> {
    let mut parts = reply.list()?;
    let mut offset = next(&mut parts)?.number()?;
    let mut events = Vec::with_capacity(parts.len());
    while let Some(event) = next(&mut parts) {
        events.push(read_event(offset, &event.bytes()?)?);
        offset += 1;
    }
    Some(events)
}

fn read_event(offset: i64, packed: &Bytes) -> Option<StreamEvent> {
    let mut from = Unpacker(packed);
    let created_at = from.timestamp()?;
    let key = from.text()?;
    let key = (!key.is_empty()).then(|| EventKey::stored(key));
    Some(StreamEvent { offset, key, payload: packed.slice_ref(from.0), created_at })
}

/// What names a consumer's saved offset.
pub(super) fn saved_field(stream: &StreamName, consumer: &ConsumerName) -> Bytes {
    [stream.as_str(), "\0", consumer.as_str()].concat().into()
}

/// The two arguments of a save.
pub(super) fn save(save: &SaveOffset) -> [Bytes; 2] {
    let SaveOffset { stream, consumer, offset } = save;
    // Nothing saved is 0, and a lower one changes nothing.
    let offset = Bytes::copy_from_slice(&offset.max(&0).to_be_bytes());
    [saved_field(stream, consumer), offset]
}

pub(super) fn saved(reply: Reply) -> Option<i64> {
    Unpacker(&reply.bytes()?).i64()
}

pub(super) fn trim(params: &TrimParams) -> Args {
    let TrimParams { stream, horizon, limit } = params;
    let horizon = (*horizon).clamp(0, NUMBER_MAX);
    vec![Packer::default().i64(horizon).u32(*limit).name(stream.as_str()).done()]
}

pub(super) fn trimmed(reply: Reply) -> Option<Trimmed> {
    let mut parts = reply.list()?;
    let (count, more) = (next(&mut parts)?.count()?, next(&mut parts)?.number()?);
    Some(Trimmed { count, more: more == 1 })
}
