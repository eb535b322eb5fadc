//! Numbers that only grow, for the whole store: of admissions, ends and claims. None is had twice.
//!
//! A number is a tick, which follows the storage's clock, and below it the place of the handle that
//! has it. The ticks of admissions and ends are drawn from one document, so that they are in the
//! order of calls whoever makes them; it also keeps the latest instant that anybody saw, so that the
//! storage's clock never runs backwards.
//!
//! A draw waits for no disk: the write that uses its number does, and comes later in the same log.
//! Where a server ends, or loses its place to another, draws may end with it, and the write reach the
//! next one. Its number is nobody else's all the same: no handle has a tick twice, and no other
//! handle has its place. What is drawn afterwards is above it, for the clock went on meanwhile.
//!
//! A claim draws nothing: it has to be above the earlier claims of its task only, and the tasks that
//! it takes say what those were. So that it is above those of a task that was removed before this one
//! was admitted with its id, whoever removes a task lifts the numbers of admissions above its claims.

use crate::{
    database::{Db, literal},
    document::{date, instant},
    errors::{Step, corrupt},
};
use mongodb::bson::{Bson, Document, doc};
use rdq_spi::Timestamp;
use std::sync::atomic::{AtomicI64, Ordering};

/// The bits of a place. Handles with the same one were opened thousands of handles apart.
const PLACE_BITS: u32 = 12;
/// Ticks in a millisecond. Whoever draws more of them is ahead of the clock for a while.
const TICKS: i64 = 256;
/// After this instant, in 2109, ticks count on without a clock.
const MILLIS_MAX: i64 = 1 << 42;

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Numbers {
    Admissions,
    Ends,
}

/// What was drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drawn {
    first: i64,
    place: i64,
    /// The storage's clock.
    pub(crate) now: Timestamp,
}

impl Drawn {
    /// One of the numbers, counted from 0.
    pub(crate) fn number(&self, index: usize) -> i64 {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        number_at(self.first.saturating_add(index), self.place)
    }
}

fn number_at(tick: i64, place: i64) -> i64 {
    (tick << PLACE_BITS) | place
}

fn tick_of(number: i64) -> i64 {
    number >> PLACE_BITS
}

/// What a handle knows of the numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    place: AtomicI64,
    /// The latest tick that this handle has had.
    latest: AtomicI64,
}

impl Numbering {
    /// The handle is the `count`th of its store.
    pub(crate) fn open(&self, count: i64) {
        self.place.store(count & ((1 << PLACE_BITS) - 1), Ordering::Release);
    }

    fn place(&self) -> i64 {
        self.place.load(Ordering::Acquire)
    }

    /// The number of a claim, above this one.
    pub(crate) fn claim(&self, now: Timestamp, above: i64) -> i64 {
        let least = (now.millis().clamp(0, MILLIS_MAX) * TICKS).max(tick_of(above) + 1);
        let next = |latest: i64| latest.saturating_add(1).max(least);
        let (done, seen) = (Ordering::AcqRel, Ordering::Acquire);
        // It always has a next one.
        let latest = self.latest.fetch_update(done, seen, |latest| Some(next(latest)));
        number_at(next(latest.unwrap_or_default()), self.place())
    }
}

/// Draws so many numbers.
pub(crate) async fn draw(db: &Db, numbers: Numbers, count: usize) -> Step<Drawn> {
    let field = match numbers {
        Numbers::Admissions => "admissions",
        Numbers::Ends => "ends",
    };
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let latest = db.numbering.latest.load(Ordering::Acquire);
    let by_clock = doc! { "$multiply": [{ "$min": [{ "$toLong": "$now" }, MILLIS_MAX] }, TICKS] };
    let before = doc! { "$max": [format!("${field}"), literal(latest), by_clock] };
    let reply = db
        .write_ahead(doc! {
            "findAndModify": "store",
            "query": { "_id": "numbers" },
            "update": [
                { "$set": { "now": { "$max": ["$now", "$$NOW", date(db.clock.latest())] } } },
                { "$set": { field: { "$add": [before, count] } } },
            ],
            "new": true,
        })
        .await?;
    let drawn = reply.get_document("value").ok().and_then(|value| read(value, field));
    let (last, now) = drawn.ok_or_else(|| corrupt("the document of numbers"))?;
    db.numbering.latest.fetch_max(last, Ordering::AcqRel);
    let now = db.clock.advance(now);
    Ok(Drawn { first: last - count + 1, place: db.numbering.place(), now })
}

fn read(value: &Document, field: &str) -> Option<(i64, Timestamp)> {
    let last = value.get_i64(field).ok()?;
    let Some(Bson::DateTime(now)) = value.get("now") else { return None };
    Some((last, instant(*now)))
}

/// The storage's clock.
pub(crate) async fn now(db: &Db) -> Step<Timestamp> {
    Ok(draw(db, Numbers::Ends, 0).await?.now)
}

/// Before tasks of these claims are removed: what is admitted from now on is above them.
pub(crate) async fn lift(db: &Db, generations: impl IntoIterator<Item = i64>) -> Step<()> {
    let Some(highest) = generations.into_iter().max() else { return Ok(()) };
    let updates = vec![doc! {
        "q": { "_id": "numbers", "admissions": { "$lt": tick_of(highest) } },
        "u": { "$set": { "admissions": tick_of(highest) } },
    }];
    db.write_ahead(doc! { "update": "store", "updates": updates }).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_follow_the_clock_and_are_above_what_they_are_told_and_never_the_same() {
        let (one, other) = (Numbering::default(), Numbering::default());
        one.open(5);
        other.open(6);
        let now = Timestamp::from_millis(1_000_000);
        let first = one.claim(now, 0);
        assert_eq!((tick_of(first), first & 4_095), (256_000_000, 5));
        assert_eq!(tick_of(one.claim(now, 0)), 256_000_001);
        assert_ne!(other.claim(now, 0), first, "at the same instant");
        let above = one.claim(now, number_at(300_000_000, 4_095));
        assert_eq!(tick_of(above), 300_000_001);
        assert_eq!(tick_of(one.claim(Timestamp::MIN, 0)), 300_000_002, "whatever the clock says");
        assert!(one.claim(Timestamp::MAX, 0) > above, "and after its end");
    }

    #[test]
    fn places_begin_anew_after_thousands_of_handles() {
        let numbering = Numbering::default();
        numbering.open(4_096 * 7 + 3);
        assert_eq!(numbering.place(), 3);
    }
}
