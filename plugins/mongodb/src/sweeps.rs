//! Maintenance of a queue: what has expired dies, and what was kept long enough goes.

use crate::{
    changes::{Applied, Change, apply},
    database::Db,
    dead_letters::remove,
    document::{CANCELLED, DEAD, Ending, IN_FLIGHT, SUCCEEDED, TaskDocument, date, heads},
    errors::{Failure, Step, corrupt},
    history::expired,
    numbers::{Drawn, Numbers, draw},
};
use mongodb::bson::{Document, doc, serialize_to_bson};
use rdq_spi::{Age, AttemptOutcome, SweepParams, Swept, TaskStatus, Timestamp};

pub(crate) async fn sweep(db: &Db, params: &SweepParams) -> Step<Swept> {
    let queue = params.queue.as_str();
    let limit = params.limit as usize;
    // Drawn for those that expire; it tells the storage's time too.
    let drawn = draw(db, Numbers::Ends, limit).await?;
    let now = drawn.now;
    let mut swept = Swept::default();
    let mut rest = limit;
    if params.expire {
        let wanted = doc! { "queue": queue, "live": true, "expires_at": { "$lte": date(now) } };
        let (tasks, more) = find(db, wanted, "expires_at", rest).await?;
        swept.more |= more;
        rest -= tasks.len();
        swept.expired = expire(db, &tasks, drawn).await?;
    }
    let kept = |status: i32, age: Option<Age>| {
        let before = match age? {
            Age::LongerThan(age) => doc! { "$lte": date(earlier(now, age)) },
            Age::Before(instant) => doc! { "$lt": date(instant) },
        };
        Some((doc! { "queue": queue, "kept": status, "finished_at": before }, "finished_at"))
    };
    let inherited = params.dead.and_then(|dead| dead.queue).map(Age::LongerThan);
    let own = params
        .dead
        .map(|_| (doc! { "queue": queue, "purge_at": { "$lte": date(now) } }, "purge_at"));
    let sources = [
        kept(SUCCEEDED, params.succeeded_older_than),
        kept(CANCELLED, params.cancelled_older_than),
        kept(DEAD, inherited),
        own,
    ];
    for (wanted, order) in sources.into_iter().flatten() {
        let late = |failure: Failure| failure.after_a_write();
        let (tasks, more) = find(db, wanted, order, rest).await.map_err(late)?;
        swept.more |= more;
        rest -= tasks.len();
        swept.removed += remove(db, &tasks).await.map_err(late)?;
    }
    Ok(swept)
}

/// So long before an instant, cut to the range of instants.
pub(crate) fn earlier(now: Timestamp, age: std::time::Duration) -> Timestamp {
    let millis = i64::try_from(age.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.millis().saturating_sub(millis))
}

/// The first of these, and whether there are more.
async fn find(
    db: &Db,
    wanted: Document,
    order: &str,
    limit: usize,
) -> Step<(Vec<TaskDocument>, bool)> {
    let one_more = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let pipeline = vec![
        doc! { "$match": wanted },
        doc! { "$sort": { order: 1 } },
        doc! { "$limit": one_more },
        heads(),
    ];
    let mut tasks: Vec<TaskDocument> = db.read(pipeline).await?;
    let more = tasks.len() > limit;
    tasks.truncate(limit);
    Ok((tasks, more))
}

/// Makes dead letters of unfinished tasks; answers of how many.
async fn expire(db: &Db, tasks: &[TaskDocument], drawn: Drawn) -> Step<u64> {
    let mut changes = Vec::with_capacity(tasks.len());
    for (index, task) in tasks.iter().enumerate() {
        let mut change = Change::of(task);
        change.append(task, AttemptOutcome::PermanentFailure, expired(), drawn.now)?;
        if task.status == IN_FLIGHT {
            let ending = Ending { call: Ending::EXPIRED, status: DEAD, next_attempt_at: None };
            change.set("ending", serialize_to_bson(&ending).map_err(|_| corrupt("ending"))?);
        }
        change.finish(task, TaskStatus::Dead, drawn.number(index), drawn.now);
        changes.push(change);
    }
    let applied = apply(db, changes).await?;
    Ok(applied.iter().filter(|applied| **applied == Applied::Done).count() as u64)
}
