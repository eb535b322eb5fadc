//! What is due in a queue, in the order of claims. Nothing is changed here: a claim that follows is
//! guarded by itself.

use crate::{
    database::Db,
    document::{TaskDocument, date, instant, with_now},
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
    at: DateTime,
    now: DateTime,
}

/// How a queue stands.
#[derive(Debug, Default)]
pub(crate) struct Front {
    is_due: bool,
    /// When the next task that waits may be due.
    next: Option<Timestamp>,
    now: Option<Timestamp>,
}

impl Front {
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
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
    let firsts: Vec<First> = db.read_recent(pipeline).await?;
    let Some(first) = firsts.first() else { return Ok(Front::default()) };
    let now = db.clock.advance(instant(first.now));
    let waiting = firsts.iter().map(|first| instant(first.at)).filter(|at| *at > now);
    Ok(Front {
        is_due: firsts.iter().any(|first| instant(first.at) <= now),
        next: waiting.min(),
        now: Some(now),
    })
}

/// An envelope or a progress of more than this is not read before its task is taken.
const READ_MAX: i64 = 4_096;

/// A task that is due.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Without its attempts.
    pub(crate) task: TaskDocument,
    /// What the answer with it weighs.
    pub(crate) bytes: i64,
    /// It was never claimed, and all that there is of it is here.
    pub(crate) is_whole: bool,
}

impl Candidate {
    fn of(task: TaskDocument) -> Self {
        let is_new = (task.revision, task.records) == (0, 0);
        let is_whole = is_new && task.envelope.is_some() && task.progress.is_some();
        Self { bytes: task.weight, task, is_whole }
    }
}

/// The first that are due. Of each priority the index is read up to the first that is not, and then
/// skipped to the next.
pub(crate) async fn due(db: &Db, queue: &QueueName, limit: usize) -> Step<Vec<Candidate>> {
    let newest = i64::try_from(CLAIM_ATTEMPTS_MAX).unwrap_or(i64::MAX);
    let newest = doc! { "$slice": ["$attempts", -newest] };
    let weight = doc! { "$add": ["$$this.light_bytes", RECORD_BYTES] };
    let size = |field: &str| doc! { "$binarySize": field };
    let if_small =
        |field: &str| doc! { "$cond": [{ "$lte": [size(field), READ_MAX] }, field, "$$REMOVE"] };
    // The server's clock, unless it was set back.
    let now = doc! { "$max": ["$$NOW", date(db.clock.latest())] };
    let pipeline = vec![
        doc! { "$match": {
            "queue": queue.as_str(), "live": true, "$expr": { "$lte": ["$at", &now] },
        } },
        doc! { "$sort": { "rank": 1, "at": 1, "seq": 1 } },
        doc! { "$limit": i64::try_from(limit).unwrap_or(i64::MAX) },
        doc! { "$set": {
            "now": now,
            "weight": { "$toLong": { "$add": [
                size("$envelope"),
                size("$progress"),
                { "$sum": { "$map": { "input": newest, "in": weight } } },
            ] } },
            "envelope": if_small("$envelope"),
            "progress": if_small("$progress"),
            "attempts": "$$REMOVE",
        } },
    ];
    let found: Vec<TaskDocument> = db.read_recent(pipeline).await?;
    if let Some(now) = found.first().and_then(|first| first.now) {
        db.clock.advance(instant(now));
    }
    Ok(found.into_iter().map(Candidate::of).collect())
}
