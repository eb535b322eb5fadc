//! Reads: one task, pages, counts, and which claims are live. Nothing here changes anything.

use crate::{
    database::Db,
    document::{
        CANCELLED, DEAD, IN_FLIGHT, PENDING, SUCCEEDED, TaskDocument, heads, instant,
        status_number, with_now,
    },
    errors::{Step, corrupt},
    history::RECORD_BYTES,
    token::{Held, StoreId},
};
use mongodb::bson::{DateTime, Document, doc};
use rdq_spi::{
    ClaimRef, ClaimToken, DlqListParams, HeldClaim, ListParams, Page, QueueName, QueueStats, Task,
    TaskId,
    keyset::{self, List},
};
use serde::Deserialize;
use std::{collections::HashMap, time::Duration};

/// One page examines at most so many tasks; one that found little ends there.
const EXAMINED_MAX: i64 = 10_000;

pub(crate) async fn get(db: &Db, id: &TaskId) -> Step<Option<Task>> {
    let wanted = doc! { "$match": { "_id": id.as_str() } };
    let found: Vec<TaskDocument> = db.read(vec![wanted]).await?;
    found.into_iter().next().map(TaskDocument::into_task).transpose()
}

/// A task of a page, before anything large is read.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "_id")]
    id: String,
    order: i64,
    bytes: i64,
}

/// A page of a list that runs down a number of its tasks.
struct Scan {
    wanted: Document,
    /// The field of that number.
    order: &'static str,
    before: i64,
    limit: u32,
    bytes_max: usize,
    /// What the history of a task weighs in the answer.
    history: Document,
    /// The stages that leave out what the answer does not have.
    light: Vec<Document>,
}

impl Scan {
    /// The tasks, and the number that the next page stays below.
    async fn run(mut self, db: &Db, status: Option<i32>) -> Step<(Vec<Task>, Option<i64>)> {
        self.wanted.insert(self.order, doc! { "$lt": self.before });
        let size = |field: &str| doc! { "$binarySize": { "$ifNull": [field, ""] } };
        let mut pipeline = vec![
            doc! { "$match": &self.wanted },
            doc! { "$sort": { self.order: -1 } },
            doc! { "$limit": EXAMINED_MAX },
        ];
        if let Some(status) = status {
            pipeline.push(doc! { "$match": { "status": status } });
        }
        pipeline.push(doc! { "$limit": i64::from(self.limit) + 1 });
        pipeline.push(doc! { "$project": {
            "order": format!("${}", self.order),
            "bytes": { "$toLong": { "$add": [
                size("$envelope"), size("$progress"), size("$result"), &self.history,
            ] } },
        } });
        let entries: Vec<Entry> = db.read(pipeline).await?;
        let mut bytes: usize = 0;
        let page = entries.iter().take(self.limit as usize).enumerate().take_while(|(n, entry)| {
            bytes = bytes.saturating_add(usize::try_from(entry.bytes).unwrap_or(usize::MAX));
            *n == 0 || bytes <= self.bytes_max
        });
        let page: Vec<_> = page.map(|(_, entry)| entry).collect();
        let next = if page.len() < entries.len() {
            page.last().map(|entry| entry.order)
        } else {
            self.last_examined(db).await?
        };
        let ids: Vec<_> = page.iter().map(|entry| entry.id.as_str()).collect();
        let mut pipeline = vec![doc! { "$match": { "_id": { "$in": ids } } }];
        pipeline.append(&mut self.light);
        let found: Vec<TaskDocument> = db.read(pipeline).await?;
        let mut found: HashMap<_, _> = found.into_iter().map(|it| (it.id.clone(), it)).collect();
        let tasks = page.iter().filter_map(|entry| found.remove(&entry.id));
        Ok((tasks.map(TaskDocument::into_task).collect::<Step<_>>()?, next))
    }

    /// Where a page ended that examined all it may; `None` if that was the whole list.
    async fn last_examined(&self, db: &Db) -> Step<Option<i64>> {
        let pipeline = vec![
            doc! { "$match": &self.wanted },
            doc! { "$sort": { self.order: -1 } },
            doc! { "$skip": EXAMINED_MAX - 1 },
            doc! { "$limit": 1 },
            doc! { "$project": { "order": format!("${}", self.order), "bytes": { "$toLong": 0 } } },
        ];
        let last: Vec<Entry> = db.read(pipeline).await?;
        Ok(last.first().map(|entry| entry.order))
    }
}

fn whole_history() -> Document {
    doc! { "$add": ["$history_bytes", { "$multiply": ["$records", RECORD_BYTES] }] }
}

pub(crate) async fn list(db: &Db, params: &ListParams, before: i64) -> Step<Page> {
    let light = doc! { "$unset": "attempts" };
    let scan = Scan {
        wanted: doc! { "queue": params.queue.as_str() },
        order: "seq",
        before,
        limit: params.limit,
        bytes_max: params.bytes_max,
        history: if params.include_attempts {
            whole_history()
        } else {
            doc! { "$add": [0] }
        },
        light: if params.include_attempts { Vec::new() } else { vec![light] },
    };
    let (tasks, next) = scan.run(db, params.status.map(status_number)).await?;
    let next = next.map(|before| keyset::encode(List::Tasks, &params.queue, before));
    Ok(Page { tasks, next })
}

pub(crate) async fn dlq_list(db: &Db, params: &DlqListParams, before: i64) -> Step<Page> {
    let last = doc! { "$slice": ["$attempts", -1] };
    let weight = doc! { "$add": ["$$this.light_bytes", RECORD_BYTES] };
    let last_weight = doc! { "$sum": { "$map": { "input": &last, "in": weight } } };
    let light = vec![
        doc! { "$set": { "attempts": last } },
        doc! { "$unset": ["attempts.error.stack", "attempts.error.detail"] },
    ];
    let scan = Scan {
        wanted: doc! { "queue": params.queue.as_str(), "live": false, "status": DEAD },
        order: "ended",
        before,
        limit: params.limit,
        bytes_max: params.bytes_max,
        history: if params.include_attempts { whole_history() } else { last_weight },
        light: if params.include_attempts { Vec::new() } else { light },
    };
    let (tasks, next) = scan.run(db, None).await?;
    let next = next.map(|before| keyset::encode(List::DeadLetters, &params.queue, before));
    Ok(Page { tasks, next })
}

/// How much of each lease is left; `None` for a claim that is not live.
pub(crate) async fn live_claims(
    db: &Db,
    store_id: StoreId,
    claims: &[ClaimRef],
) -> Step<Vec<Option<Duration>>> {
    let ids: Vec<_> = claims.iter().map(|claim| claim.task_id.as_str()).collect();
    let wanted = doc! { "$match": { "_id": { "$in": ids }, "status": IN_FLIGHT } };
    let found: Vec<TaskDocument> = db.read(vec![wanted, heads(), with_now()]).await?;
    let found: HashMap<_, _> = found.into_iter().map(|task| (task.id.clone(), task)).collect();
    let answers = claims.iter().map(|claim| {
        let task = found.get(claim.task_id.as_str())?;
        let is_of = Held { seq: task.seq, generation: task.generation };
        let now = db.clock.advance(instant(task.now?));
        let holds = store_id.held(&claim.token) == Some(is_of) && !task.has_lapsed(now);
        holds.then_some(instant(task.at?).since(now))
    });
    Ok(answers.collect())
}

/// The tokens of claims that are their task's newest, live or not. Who held one that has ended is not
/// kept.
pub(crate) async fn claims_of(
    db: &Db,
    store_id: StoreId,
    claims: &[HeldClaim],
) -> Step<Vec<Option<ClaimToken>>> {
    let ids: Vec<_> = claims.iter().map(|claim| claim.task_id.as_str()).collect();
    let wanted = doc! { "$match": { "_id": { "$in": ids } } };
    let found: Vec<TaskDocument> = db.read(vec![wanted, heads()]).await?;
    let found: HashMap<_, _> = found.iter().map(|task| (task.id.as_str(), task)).collect();
    let answers = claims.iter().map(|claim| {
        let task = found.get(claim.task_id.as_str())?;
        let is_newest = task.generation > 0 && task.generation == claim.generation;
        let holder = task.claimed_by.as_deref();
        let is_theirs = holder.is_none_or(|holder| holder == claim.worker_id.as_str());
        let held = Held { seq: task.seq, generation: task.generation };
        (is_newest && is_theirs).then(|| store_id.token(held))
    });
    Ok(answers.collect())
}

/// The counts of one status.
#[derive(Debug, Deserialize)]
struct Count {
    #[serde(rename = "_id")]
    status: i32,
    all: i64,
    #[serde(default)]
    due: i64,
    #[serde(default)]
    first: Option<DateTime>,
    #[serde(default)]
    now: Option<DateTime>,
}

/// Counts by the indexes alone.
pub(crate) async fn stats(db: &Db, queue: &QueueName) -> Step<QueueStats> {
    let of = |live: bool| doc! { "$match": { "queue": queue.as_str(), "live": live } };
    let is_due = doc! { "$cond": [{ "$lte": ["$at", "$$NOW"] }, 1_i64, 0_i64] };
    let live = vec![
        of(true),
        doc! { "$group": {
            "_id": "$status",
            "all": { "$sum": 1_i64 },
            "due": { "$sum": is_due },
            "first": { "$min": "$at" },
        } },
        with_now(),
    ];
    let finished =
        vec![of(false), doc! { "$group": { "_id": "$status", "all": { "$sum": 1_i64 } } }];
    let (live, finished) = (db.read::<Count>(live).await?, db.read::<Count>(finished).await?);
    let mut stats = QueueStats::default();
    for count in live.into_iter().chain(finished) {
        let number = |count: i64| u64::try_from(count).unwrap_or_default();
        let (all, due) = (number(count.all), number(count.due));
        match count.status {
            PENDING => {
                (stats.ready, stats.delayed) = (due, all.saturating_sub(due));
                if let (Some(first), Some(now), true) = (count.first, count.now, due > 0) {
                    stats.oldest_pending_age = Some(instant(now).since(instant(first)));
                }
            }
            IN_FLIGHT => (stats.in_flight, stats.lapsed) = (all, due),
            SUCCEEDED => stats.succeeded = all,
            DEAD => stats.dead = all,
            CANCELLED => stats.cancelled = all,
            _ => return Err(corrupt("status")),
        }
    }
    Ok(stats)
}
