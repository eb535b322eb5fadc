//! What is due in a queue, in the order of claims. Nothing is changed here: a claim that follows is
//! guarded by itself.

use crate::{
    database::Db,
    document::{date, instant, with_now},
    errors::Step,
    history::RECORD_BYTES,
};
use mongodb::bson::{DateTime, doc};
use rdq_spi::{CLAIM_ATTEMPTS_MAX, QueueName, Timestamp};
use serde::Deserialize;
use std::time::Duration;

/// The first task of one priority.
#[derive(Debug, Deserialize)]
struct First {
    #[serde(rename = "_id")]
    rank: i64,
    at: DateTime,
    now: DateTime,
}

/// How a queue stands.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The priorities of which something is due, as ranks, in the order of claims.
    ranks: Vec<i64>,
    /// When the next task that waits may be due.
    next: Option<Timestamp>,
    pub(crate) now: Option<Timestamp>,
}

impl Front {
    pub(crate) fn is_due(&self) -> bool {
        !self.ranks.is_empty()
    }

    /// How long until something is due.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        if self.is_due() {
            return Some(Duration::ZERO);
        }
        self.waits()
    }

    /// How long until the next task that waits may be due.
    pub(crate) fn waits(&self) -> Option<Duration> {
        Some(self.next?.since(self.now?))
    }
}

/// Looks at the first task of each priority: the index is skipped through, not read.
pub(crate) async fn front(db: &Db, queue: &QueueName) -> Step<Front> {
    let pipeline = vec![
        doc! { "$match": { "queue": queue.as_str(), "live": true } },
        doc! { "$sort": { "rank": 1, "at": 1 } },
        doc! { "$group": { "_id": "$rank", "at": { "$first": "$at" } } },
        with_now(),
    ];
    let mut firsts: Vec<First> = db.read_recent(pipeline).await?;
    firsts.sort_by_key(|first| first.rank);
    let Some(first) = firsts.first() else { return Ok(Front::default()) };
    let now = db.clock.advance(instant(first.now));
    let (due, waiting): (Vec<_>, Vec<_>) =
        firsts.iter().partition(|first| instant(first.at) <= now);
    Ok(Front {
        ranks: due.iter().map(|first| first.rank).collect(),
        next: waiting.iter().map(|first| instant(first.at)).min(),
        now: Some(now),
    })
}

/// A task that is due.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Candidate {
    #[serde(rename = "_id")]
    pub(crate) id: String,
    pub(crate) seq: i64,
    /// What the answer with it weighs.
    pub(crate) bytes: i64,
}

/// The first that are due.
pub(crate) async fn due(
    db: &Db,
    queue: &QueueName,
    front: &Front,
    limit: usize,
) -> Step<Vec<Candidate>> {
    let mut found = Vec::new();
    let Some(now) = front.now else { return Ok(found) };
    for rank in &front.ranks {
        let rest = i64::try_from(limit - found.len()).unwrap_or(i64::MAX);
        if rest == 0 {
            break;
        }
        let newest = i64::try_from(CLAIM_ATTEMPTS_MAX).unwrap_or(i64::MAX);
        let newest = doc! { "$slice": ["$attempts", -newest] };
        let weight = doc! { "$add": ["$$this.light_bytes", RECORD_BYTES] };
        let pipeline = vec![
            doc! { "$match": {
                "queue": queue.as_str(), "live": true, "rank": *rank, "at": { "$lte": date(now) },
            } },
            doc! { "$sort": { "at": 1, "seq": 1 } },
            doc! { "$limit": rest },
            doc! { "$project": {
                "seq": 1,
                "bytes": { "$toLong": { "$add": [
                    { "$binarySize": "$envelope" },
                    { "$binarySize": "$progress" },
                    { "$sum": { "$map": { "input": newest, "in": weight } } },
                ] } },
            } },
        ];
        found.extend(db.read_recent::<Candidate>(pipeline).await?);
    }
    Ok(found)
}
