//! Numbers that only grow, for the whole store: of admissions, claims and ends. They are drawn from
//! one document, which also keeps the latest instant that anybody saw: the storage's clock never
//! runs backwards.
//!
//! A draw waits for no disk: the write that uses its number does, and comes later in the same log.
//! Each call draws for itself, so that numbers are in the order of calls whoever makes them.

use crate::{
    database::Db,
    document::instant,
    errors::{Step, corrupt},
};
use mongodb::bson::{Bson, Document, doc};
use rdq_spi::Timestamp;

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbers {
    Admissions,
    Claims,
    Ends,
}

/// What was drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    /// The first of the numbers.
    pub(crate) first: i64,
    /// The storage's clock.
    pub(crate) now: Timestamp,
}

/// Draws so many numbers.
pub(crate) async fn draw(db: &Db, numbers: Numbers, count: usize) -> Step<Drawn> {
    let field = match numbers {
        Numbers::Admissions => "admissions",
        Numbers::Claims => "claims",
        Numbers::Ends => "ends",
    };
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let reply = db
        .write_ahead(doc! {
            "findAndModify": "store",
            "query": { "_id": "numbers" },
            "update": [{ "$set": {
                field: { "$add": [{ "$ifNull": [format!("${field}"), 0_i64] }, count] },
                "now": { "$max": ["$now", "$$NOW"] },
            } }],
            "new": true,
        })
        .await?;
    let drawn = reply.get_document("value").ok().and_then(|value| read(value, field, count));
    let mut drawn = drawn.ok_or_else(|| corrupt("the document of numbers"))?;
    drawn.now = db.clock.advance(drawn.now);
    Ok(drawn)
}

fn read(value: &Document, field: &str, count: i64) -> Option<Drawn> {
    let last = value.get_i64(field).ok()?;
    let Some(Bson::DateTime(now)) = value.get("now") else { return None };
    Some(Drawn { first: last - count + 1, now: instant(*now) })
}
