//! Locks: one document each, for ever, changed by one command, which reads the server's clock itself.

use crate::{
    database::Db,
    document::{date, instant},
    errors::{Step, corrupt},
};
use mongodb::bson::{DateTime, Document, deserialize_from_document, doc};
use rdq_spi::{HeldLock, Hold, LockName, OwnerName, Timestamp, TryLock};
use serde::Deserialize;
use std::time::Duration;

pub(super) const COLLECTION: &str = "locks";

#[derive(Debug, Deserialize)]
struct LockDocument {
    #[serde(default)]
    owner: Option<String>,
    generation: i64,
    #[serde(default)]
    expires_at: Option<DateTime>,
    /// The latest instant that anybody saw who changed it.
    seen: DateTime,
    /// The server's clock, where it was read.
    #[serde(default)]
    now: Option<DateTime>,
}

impl LockDocument {
    /// The hold, if it is not over then.
    fn held(self, now: Timestamp) -> Option<HeldLock> {
        let expires_at = instant(self.expires_at?);
        (expires_at > now).then_some(HeldLock {
            owner: OwnerName::stored(self.owner?),
            generation: self.generation,
            expires_at,
            remaining: expires_at.since(now),
        })
    }
}

/// The server's clock, unless it was set back.
fn now(db: &Db) -> Document {
    doc! { "$max": ["$seen", "$$NOW", date(db.clock.latest())] }
}

/// The end of a hold that begins, or is renewed, at the instant `seen`.
fn end(ttl: Duration) -> Document {
    let millis = i64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    let range = Timestamp::MAX.millis() - Timestamp::from_millis(0).millis();
    let latest = date(Timestamp::MAX);
    doc! { "$min": [{ "$add": ["$seen", millis.min(range)] }, latest] }
}

/// Acquires the lock if nobody holds it.
pub(super) async fn try_lock(db: &Db, params: &TryLock) -> Step<Option<HeldLock>> {
    let TryLock { name, owner, ttl } = params;
    let is_free = doc! { "$lte": [{ "$ifNull": ["$expires_at", "$seen"] }, "$seen"] };
    let if_free = |value: Document, otherwise: &str| doc! { "$cond": ["$free", value, otherwise] };
    let next = doc! { "$add": [{ "$ifNull": ["$generation", 0_i64] }, 1_i64] };
    let command = doc! {
        "findAndModify": COLLECTION,
        "query": { "_id": name.as_str() },
        "update": [
            { "$set": { "seen": now(db) } },
            { "$set": { "free": is_free } },
            { "$set": {
                "owner": if_free(doc! { "$literal": owner.as_str() }, "$owner"),
                "generation": if_free(next, "$generation"),
                "expires_at": if_free(end(*ttl), "$expires_at"),
            } },
            { "$unset": "free" },
        ],
        "upsert": true,
        "new": true,
    };
    let held = changed(db, command).await?.ok_or_else(|| corrupt("the server's answer"))?;
    let now = instant(held.seen);
    Ok(held.held(now).filter(|held| held.owner == *owner))
}

/// The document of a hold that is not over, by the server's clock at the change itself.
fn held(db: &Db, hold: &Hold) -> Document {
    let mut wanted = doc! {
        "_id": hold.name.as_str(),
        "owner": hold.owner.as_str(),
        "$expr": { "$gt": ["$expires_at", now(db)] },
    };
    if let Some(generation) = hold.generation {
        wanted.insert("generation", generation);
    }
    wanted
}

/// Moves a hold's end.
pub(super) async fn renew(db: &Db, hold: &Hold, ttl: Duration) -> Step<Option<HeldLock>> {
    let command = doc! {
        "findAndModify": COLLECTION,
        "query": held(db, hold),
        "update": [{ "$set": { "seen": now(db) } }, { "$set": { "expires_at": end(ttl) } }],
        "new": true,
    };
    let Some(renewed) = changed(db, command).await? else { return Ok(None) };
    let now = instant(renewed.seen);
    Ok(renewed.held(now))
}

/// Ends a hold, and says whether there was one.
pub(super) async fn release(db: &Db, hold: &Hold) -> Step<bool> {
    let command = doc! {
        "findAndModify": COLLECTION,
        "query": held(db, hold),
        "update": [{ "$set": { "seen": now(db) } }, { "$unset": ["owner", "expires_at"] }],
        "new": true,
    };
    Ok(changed(db, command).await?.is_some())
}

/// The document as a command left it; `None` if it found none.
async fn changed(db: &Db, command: Document) -> Step<Option<LockDocument>> {
    let reply = db.write(command).await?;
    let Ok(found) = reply.get_document("value") else { return Ok(None) };
    let found: LockDocument =
        deserialize_from_document(found.clone()).map_err(|_| corrupt("lock"))?;
    db.clock.advance(instant(found.seen));
    Ok(Some(found))
}

/// Who holds the lock.
pub(super) async fn get(db: &Db, name: &LockName) -> Step<Option<HeldLock>> {
    let wanted =
        vec![doc! { "$match": { "_id": name.as_str() } }, doc! { "$set": { "now": "$$NOW" } }];
    let found: Vec<LockDocument> = db.read_from(COLLECTION, wanted).await?;
    Ok(found.into_iter().next().and_then(|found| {
        let said = instant(found.seen.max(found.now.unwrap_or(found.seen)));
        let now = db.clock.advance(said);
        found.held(now)
    }))
}
