//! Records. Lists go by key; a number of the record's making keeps out what is newer than the list.
//!
//! Those numbers come from a few counters, one of which is part of the transaction that makes a
//! record: who reads a counter knows that all below it is there, and that nothing more will be. One
//! counter alone would make all who make records stand in each other's way.

use super::session::{Ended, Runs};
use crate::{
    database::{Db, literal, random},
    document::{binary, bytes, date, instant},
    errors::{Access, Step, corrupt},
};
use bytes::Bytes;
use mongodb::bson::{Binary, DateTime, Document, doc};
use rdq_spi::{
    CompareAndSet, ListRecords, Position, Record, RecordKey, RecordName, RecordPage, RecordSpace,
    Result, StorageError,
};
use serde::Deserialize;
use std::ops::ControlFlow;

pub(super) const COLLECTION: &str = "records";

/// One call looks at so many records at most; a page that found little ends there.
const EXAMINED_MAX: usize = 10_000;
const COUNTERS: usize = 16;

/// A record, or where one was.
#[derive(Debug, Deserialize)]
struct RecordDocument {
    #[serde(rename = "_id")]
    id: String,
    /// By which counter, and as its which, it was made; unset once it was removed.
    #[serde(default)]
    made: Option<(i32, i64)>,
    revision: i64,
    #[serde(default)]
    value: Option<Binary>,
    updated_at: DateTime,
}

impl RecordDocument {
    fn into_record(self, name: RecordName) -> Record {
        Record {
            name,
            value: bytes(self.value),
            revision: self.revision,
            updated_at: instant(self.updated_at),
        }
    }
}

/// Keys of a space follow each other.
fn head_of(space: RecordSpace) -> String {
    format!("{}/", space.as_str())
}

fn id_of(key: &RecordKey) -> String {
    head_of(key.space) + key.name.as_str()
}

fn counter_id(counter: usize) -> String {
    format!("records-{counter}")
}

fn conflict<T>(change: &CompareAndSet) -> Result<T> {
    let (name, expected_revision) = (change.key.name.clone(), change.expected_revision);
    Err(StorageError::CasConflict { name, expected_revision })
}

/// Changes a record, and answers its revision.
pub(super) async fn compare_and_set(db: &Db, change: &CompareAndSet) -> Step<Result<i64>> {
    let CompareAndSet { key, value, expected_revision } = change;
    let Some(value) = value else { return remove(db, change).await };
    if *expected_revision > 0 {
        let next = expected_revision.saturating_add(1);
        let set = doc! {
            "revision": next, "value": literal(binary(value)), "updated_at": now(db),
        };
        let update = vec![doc! { "$set": set }];
        let is_changed = change_one(db, key, *expected_revision, update).await?;
        return Ok(if is_changed { Ok(next) } else { conflict(change) });
    }
    if db.is_within() {
        let made = make(db, key, value).await?;
        return Ok(made.map_or_else(|| conflict(change), Ok));
    }
    let mut runs = Runs::default();
    loop {
        let tx = db.begin(Access::Write).await?;
        let made = make(&tx, key, value).await;
        let ended = made.map(|made| match made {
            Some(revision) => Ended::Kept(Ok(revision)),
            None => Ended::Undone(conflict(change)),
        });
        if let Some(answer) = runs.settle(tx, ended).await? {
            return Ok(answer);
        }
    }
}

fn now(db: &Db) -> Document {
    doc! { "$max": ["$updated_at", "$$NOW", date(db.clock.latest())] }
}

/// Makes a record within a transaction, and answers its revision; `None` if it is there.
async fn make(tx: &Db, key: &RecordKey, value: &[u8]) -> Step<Option<i64>> {
    let id = id_of(key);
    let there = vec![doc! { "$match": { "_id": &id, "made": { "$exists": true } } }];
    if !tx.read_from::<RecordDocument>(COLLECTION, there).await?.is_empty() {
        return Ok(None);
    }
    let counter = usize::try_from(random()).unwrap_or_default() % COUNTERS;
    let counted = tx.write(doc! {
        "findAndModify": "store",
        "query": { "_id": counter_id(counter) },
        "update": { "$inc": { "count": 1_i64 } },
        "upsert": true,
        "new": true,
    });
    let count = number_of(&counted.await?, "count")?;
    let counter = i32::try_from(counter).unwrap_or_default();
    let made = tx.write(doc! {
        "findAndModify": COLLECTION,
        "query": { "_id": &id },
        "update": [{ "$set": {
            "made": [literal(counter), literal(count)],
            "revision": { "$add": [{ "$ifNull": ["$revision", 0_i64] }, 1_i64] },
            "value": literal(binary(value)),
            "updated_at": now(tx),
        } }],
        "upsert": true,
        "new": true,
        "fields": { "revision": 1 },
    });
    number_of(&made.await?, "revision").map(Some)
}

fn number_of(reply: &Document, field: &str) -> Step<i64> {
    let number = reply.get_document("value").ok().and_then(|value| value.get_i64(field).ok());
    number.ok_or_else(|| corrupt("the server's answer"))
}

async fn remove(db: &Db, change: &CompareAndSet) -> Step<Result<i64>> {
    let expected = change.expected_revision;
    // The document stays: its revision is what the next one goes on from.
    let update =
        vec![doc! { "$set": { "updated_at": now(db) } }, doc! { "$unset": ["made", "value"] }];
    let is_changed = change_one(db, &change.key, expected, update).await?;
    Ok(if is_changed { Ok(expected) } else { conflict(change) })
}

/// Changes a record that is there, with this revision; says whether there was one.
async fn change_one(db: &Db, key: &RecordKey, revision: i64, update: Vec<Document>) -> Step<bool> {
    let wanted = doc! { "_id": id_of(key), "revision": revision, "made": { "$exists": true } };
    let command = doc! { "update": COLLECTION, "updates": [{ "q": wanted, "u": update }] };
    let reply = db.write(command).await?;
    match crate::changes::first_error(&reply, Access::Write) {
        Some(failure) => Err(failure),
        None => Ok(crate::changes::number(&reply, "n") > 0),
    }
}

/// A record.
pub(super) async fn get(db: &Db, key: &RecordKey) -> Step<Option<Record>> {
    let wanted = doc! { "_id": id_of(key), "made": { "$exists": true } };
    let found = db.read_from::<RecordDocument>(COLLECTION, vec![doc! { "$match": wanted }]);
    Ok(found.await?.into_iter().next().map(|found| found.into_record(key.name.clone())))
}

/// A page of records.
pub(super) async fn list(db: &Db, params: &ListRecords, place: Option<Place>) -> Step<RecordPage> {
    let ListRecords { space, prefix, position: _, limit, bytes_max } = params;
    let mut place = match place {
        Some(place) => place,
        None => Place { newest: newest(db).await?, after: None },
    };
    let head = head_of(*space);
    let first = doc! { "$gte": format!("{head}{prefix}") };
    let next = |after: &String| doc! { "$gt": format!("{head}{after}") };
    let mut wanted = place.after.as_ref().map_or(first, next);
    wanted.insert("$lt", end_of(&format!("{head}{prefix}")));
    let pipeline = vec![
        doc! { "$match": { "_id": wanted } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::try_from(EXAMINED_MAX + 1).unwrap_or(i64::MAX) },
    ];
    let (mut records, mut bytes, mut examined, mut has_more) = (Vec::new(), 0, 0, false);
    let each = |found: RecordDocument| {
        has_more = records.len() >= *limit as usize || examined >= EXAMINED_MAX;
        if has_more {
            return Ok(ControlFlow::Break(()));
        }
        let key = found.id.strip_prefix(&head).ok_or_else(|| corrupt("record's key"))?.to_owned();
        if place.has(found.made) {
            bytes += key.len() + found.value.as_ref().map_or(0, |value| value.bytes.len());
            if !records.is_empty() && bytes > *bytes_max {
                has_more = true;
                return Ok(ControlFlow::Break(()));
            }
            records.push(found.into_record(RecordName::stored(key.as_str())));
        }
        examined += 1;
        place.after = Some(key);
        Ok(ControlFlow::Continue(()))
    };
    db.read_each(COLLECTION, pipeline, each).await?;
    let next = has_more.then(|| place.encode(*space, prefix));
    Ok(RecordPage { records, next })
}

/// How far the counters are.
async fn newest(db: &Db) -> Step<[i64; COUNTERS]> {
    #[derive(Deserialize)]
    struct Counter {
        #[serde(rename = "_id")]
        id: String,
        count: i64,
    }
    let ids: Vec<_> = (0..COUNTERS).map(counter_id).collect();
    let wanted = vec![doc! { "$match": { "_id": { "$in": &ids } } }];
    let found: Vec<Counter> = db.read_from("store", wanted).await?;
    let mut newest = [0; COUNTERS];
    for Counter { id, count } in found {
        if let Some(place) = ids.iter().position(|it| *it == id) {
            newest[place] = count;
        }
    }
    Ok(newest)
}

/// Above every key that starts so, and not above any other that is above those. No prefix here is
/// without a character that has a next one.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Of characters, the order is that of their bytes.
        if let Some(next) = (last..=char::MAX).nth(1) {
            end.push(next);
            break;
        }
    }
    end
}

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// What the counters gave after these is not in the list.
    newest: [i64; COUNTERS],
    /// The last key before the page.
    after: Option<String>,
}

impl Place {
    const VERSION: u8 = 1;

    fn has(&self, made: Option<(i32, i64)>) -> bool {
        let Some((counter, count)) = made else { return false };
        let newest = usize::try_from(counter).ok().and_then(|counter| self.newest.get(counter));
        newest.is_some_and(|newest| count <= *newest)
    }

    fn encode(&self, space: RecordSpace, prefix: &str) -> Position {
        let mut bytes = Self::head(space, prefix);
        bytes.extend(self.newest.iter().flat_map(|count| count.to_be_bytes()));
        bytes.extend(self.after.iter().flat_map(|after| after.bytes()));
        Position(Bytes::from(bytes))
    }

    /// Reads a position; `None` if it is not one of this list.
    pub(super) fn decode(
        space: RecordSpace,
        prefix: &str,
        Position(bytes): &Position,
    ) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&Self::head(space, prefix)[..])?;
        let mut newest = [0; COUNTERS];
        for count in &mut newest {
            let (bytes, after) = rest.split_first_chunk()?;
            *count = i64::from_be_bytes(*bytes);
            rest = after;
        }
        let after = std::str::from_utf8(rest).ok()?;
        let is_minted = newest.iter().all(|count| *count >= 0)
            && !after.is_empty()
            && after.starts_with(prefix);
        is_minted.then(|| Self { newest, after: Some(after.to_owned()) })
    }

    /// What says which list it is.
    fn head(space: RecordSpace, prefix: &str) -> Vec<u8> {
        let mut head = vec![Self::VERSION];
        for part in [space.as_str(), prefix] {
            head.extend((part.len() as u64).to_be_bytes());
            head.extend(part.as_bytes());
        }
        head
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[test]
    fn a_position_serves_its_own_list_alone() {
        let mut newest = [7; COUNTERS];
        newest[3] = i64::MAX;
        let place = Place { newest, after: Some("ab".into()) };
        let position = place.encode(RecordSpace::Caller, "a");
        let decode = Place::decode;
        assert_eq!(decode(RecordSpace::Caller, "a", &position), Some(place));
        assert_eq!(decode(RecordSpace::Schedules, "a", &position), None);
        assert_eq!(decode(RecordSpace::Caller, "", &position), None);
        assert_eq!(decode(RecordSpace::Caller, "ab", &position), None);
        for len in 0..position.0.len() - 1 {
            let cut = Position(position.0.slice(..len));
            assert_eq!(decode(RecordSpace::Caller, "a", &cut), None, "{len}");
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_above_what_starts_so_and_nothing_else() {
        for prefix in ["caller/", "caller/a", "caller/ä", "x\u{d7ff}", "x\u{10ffff}\u{10ffff}"] {
            let end = end_of(prefix);
            assert!(format!("{prefix}\u{10ffff}") < end, "{prefix}");
            assert!(*prefix < *end);
        }
        assert_eq!(end_of("caller/"), "caller0");
        assert_eq!(end_of("x\u{d7ff}"), "x\u{e000}");
        assert_eq!(end_of("x\u{10ffff}"), "y");
    }
}
