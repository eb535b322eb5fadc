//! Streams. Whoever publishes changes the stream's counter in the transaction of the events: of two
//! that do so at once, one begins anew after the other's commit. So offsets become visible in their
//! order, and what is rolled back leaves none out.

use crate::{
    changes::{COMMAND_BYTES_MAX, COMMAND_CHANGES_MAX, number},
    database::Db,
    document::{binary, bytes, date, instant},
    errors::{Access, Failure, Step, corrupt},
};
use mongodb::bson::{Binary, Bson, DateTime, Document, doc};
use rdq_spi::{
    ConsumerName, EventKey, NewEvent, ReadFrom, ReadParams, SaveOffset, StreamEvent, StreamName,
    Timestamp, TrimParams, Trimmed,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

pub(super) const STREAMS: &str = "streams";
pub(super) const EVENTS: &str = "events";
pub(super) const OFFSETS: &str = "offsets";

#[derive(Debug, Deserialize)]
struct EventDocument {
    #[serde(rename = "_id")]
    id: EventId,
    at: DateTime,
    #[serde(default)]
    key: Option<String>,
    payload: Binary,
}

#[derive(Debug, Deserialize)]
struct EventId {
    #[serde(rename = "o")]
    offset: i64,
}

#[derive(Debug, Deserialize)]
struct Counter {
    #[serde(rename = "_id")]
    stream: String,
    last: i64,
}

#[derive(Debug, Deserialize)]
struct Found {
    #[serde(rename = "_id")]
    id: EventId,
}

/// Events of a stream follow each other in their collection.
fn event_id(stream: &StreamName, offset: i64) -> Document {
    doc! { "s": stream.as_str(), "o": offset }
}

/// The next offsets of a stream, and when.
struct Counted {
    next: i64,
    now: Timestamp,
}

/// Appends events within a transaction, in their order.
pub(super) async fn publish(tx: &Db, events: &[&NewEvent]) -> Step<Vec<i64>> {
    let mut counts: BTreeMap<&StreamName, i64> = BTreeMap::new();
    for event in events {
        *counts.entry(&event.stream).or_default() += 1;
    }
    let mut counters = BTreeMap::new();
    for (stream, count) in counts {
        counters.insert(stream, advance(tx, stream, count).await?);
    }
    let mut offsets = Vec::with_capacity(events.len());
    let (mut documents, mut size) = (Vec::new(), 0);
    for event in events {
        let counter = counters.get_mut(&event.stream).ok_or_else(|| corrupt("stream"))?;
        let offset = counter.next;
        counter.next += 1;
        offsets.push(offset);
        let (document, bytes) = event_document(event, offset, counter.now);
        let is_full = documents.len() == COMMAND_CHANGES_MAX || size + bytes > COMMAND_BYTES_MAX;
        if is_full && !documents.is_empty() {
            insert(tx, std::mem::take(&mut documents)).await?;
            size = 0;
        }
        documents.push(document);
        size += bytes;
    }
    insert(tx, documents).await?;
    Ok(offsets)
}

/// The offsets that events would get, after so many others of a transaction that is not to happen: it
/// stands in nobody's way, and nobody in its.
pub(super) async fn foresee(
    db: &Db,
    events: &[&NewEvent],
    before: &mut BTreeMap<StreamName, i64>,
) -> Step<Vec<i64>> {
    let streams: BTreeSet<_> = events.iter().map(|event| event.stream.as_str()).collect();
    let streams: Vec<_> = streams.into_iter().collect();
    let wanted = doc! { "$match": { "_id": { "$in": streams } } };
    let found: Vec<Counter> = db.read_from(STREAMS, vec![wanted]).await?;
    let last: BTreeMap<_, _> = found.iter().map(|it| (it.stream.as_str(), it.last)).collect();
    let offsets = events.iter().map(|event| {
        let count = before.entry(event.stream.clone()).or_default();
        *count += 1;
        last.get(event.stream.as_str()).copied().unwrap_or_default() + *count
    });
    Ok(offsets.collect())
}

/// Counts on. The stream exists from then on.
async fn advance(tx: &Db, stream: &StreamName, count: i64) -> Step<Counted> {
    let reply = tx
        .write(doc! {
            "findAndModify": STREAMS,
            "query": { "_id": stream.as_str() },
            "update": [{ "$set": {
                "last": { "$add": [{ "$ifNull": ["$last", 0_i64] }, count] },
                "now": { "$max": ["$now", "$$NOW", date(tx.clock.latest())] },
            } }],
            "upsert": true,
            "new": true,
        })
        .await?;
    let counted = reply.get_document("value").ok().and_then(|value| {
        let Some(Bson::DateTime(now)) = value.get("now") else { return None };
        let next = value.get_i64("last").ok()? - count + 1;
        Some(Counted { next, now: tx.clock.advance(instant(*now)) })
    });
    counted.ok_or_else(|| corrupt("stream"))
}

fn event_document(event: &NewEvent, offset: i64, at: Timestamp) -> (Document, usize) {
    let NewEvent { stream, key, payload } = event;
    let mut document = doc! { "_id": event_id(stream, offset), "at": date(at) };
    let mut size = 200 + stream.as_str().len() + payload.len();
    if let Some(key) = key {
        document.insert("key", key.as_str());
        size += key.as_str().len();
    }
    document.insert("payload", binary(payload));
    (document, size)
}

async fn insert(tx: &Db, documents: Vec<Document>) -> Step<()> {
    tx.write(doc! { "insert": EVENTS, "documents": documents }).await.map(|_| ())
}

/// Events, in their order.
pub(super) async fn read(db: &Db, params: &ReadParams) -> Step<Vec<StreamEvent>> {
    let ReadParams { stream, from, limit, bytes_max } = params;
    let after = match from {
        ReadFrom::Offset(offset) => *offset,
        ReadFrom::Consumer(consumer) => saved_offset(db, stream, consumer).await?,
    };
    let range = doc! { "$gt": event_id(stream, after), "$lte": event_id(stream, i64::MAX) };
    let pipeline = vec![
        doc! { "$match": { "_id": range } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::from(*limit) },
    ];
    let (mut events, mut bytes_read) = (Vec::new(), 0);
    let each = |found: EventDocument| {
        bytes_read += found.payload.bytes.len() + found.key.as_ref().map_or(0, String::len);
        if !events.is_empty() && bytes_read > *bytes_max {
            return Ok(ControlFlow::Break(()));
        }
        events.push(StreamEvent {
            offset: found.id.offset,
            key: found.key.map(EventKey::stored),
            payload: bytes(Some(found.payload)),
            created_at: instant(found.at),
        });
        Ok(ControlFlow::Continue(()))
    };
    db.read_each(EVENTS, pipeline, each).await?;
    Ok(events)
}

#[derive(Debug, Deserialize)]
struct Saved {
    offset: i64,
}

fn consumer_id(stream: &StreamName, consumer: &ConsumerName) -> Document {
    doc! { "s": stream.as_str(), "c": consumer.as_str() }
}

/// Saves what a consumer has read up to, and answers what is saved.
pub(super) async fn save_offset(db: &Db, save: &SaveOffset) -> Step<i64> {
    let SaveOffset { stream, consumer, offset } = save;
    let reply = db
        .write(doc! {
            "findAndModify": OFFSETS,
            "query": { "_id": consumer_id(stream, consumer) },
            "update": [{ "$set": {
                "offset": { "$max": [{ "$ifNull": ["$offset", 0_i64] }, *offset] },
            } }],
            "upsert": true,
            "new": true,
        })
        .await?;
    let saved = reply.get_document("value").ok().and_then(|value| value.get_i64("offset").ok());
    saved.ok_or_else(|| corrupt("saved offset"))
}

/// What the consumer saved; 0 if nothing.
pub(super) async fn saved_offset(
    db: &Db,
    stream: &StreamName,
    consumer: &ConsumerName,
) -> Step<i64> {
    let wanted = doc! { "$match": { "_id": consumer_id(stream, consumer) } };
    let found: Vec<Saved> = db.read_from(OFFSETS, vec![wanted]).await?;
    Ok(found.first().map_or(0, |saved| saved.offset))
}

/// Removes the oldest events. None can appear among them any more: offsets are visible in order.
pub(super) async fn trim(db: &Db, params: &TrimParams) -> Step<Trimmed> {
    let TrimParams { stream, horizon, limit } = params;
    let upto = |last: i64| {
        doc! { "_id": {
            "$gte": event_id(stream, i64::MIN), "$lte": event_id(stream, last),
        } }
    };
    let pipeline = vec![
        doc! { "$match": upto(*horizon) },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::from(*limit) },
        doc! { "$project": { "_id": 1 } },
    ];
    let found: Vec<Found> = db.read_from(EVENTS, pipeline).await?;
    let Some(last) = found.last() else { return Ok(Trimmed::default()) };
    let deletes = vec![doc! { "q": upto(last.id.offset), "limit": 0 }];
    let reply = db.write(doc! { "delete": EVENTS, "deletes": deletes }).await?;
    let count = u64::try_from(number(&reply, "n")).unwrap_or_default();
    match crate::changes::first_error(&reply, Access::Write) {
        None => Ok(Trimmed { count, more: found.len() >= *limit as usize }),
        // It stopped there, and goes on with the next step.
        Some(Failure::Contention) => Ok(Trimmed { count, more: true }),
        Some(failure) => Err(failure.after_a_write()),
    }
}
