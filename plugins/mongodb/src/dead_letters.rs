//! Steps over dead letters: redrives and purges, newest first. A step remembers how far down the
//! order of deaths it came, so what dies while it runs is above it and not of its selection.

use crate::{
    changes::{Applied, Change, apply, number},
    database::Db,
    document::{DEAD, TaskDocument, heads, instant, one_more, with_now},
    errors::{Failure, Step},
    numbers::lift,
};
use mongodb::bson::doc;
use rdq_spi::{
    PurgeParams, QueueName, RedriveParams, Selection, StorageError, TaskId,
    keyset::{self, List},
};

/// What is to be changed, and the number of deaths that the next step goes on below.
struct Selected {
    tasks: Vec<TaskDocument>,
    next: Option<i64>,
}

pub(crate) async fn redrive(db: &Db, params: &RedriveParams, before: i64) -> Step<rdq_spi::Step> {
    let RedriveParams { queue, selection, limit, .. } = params;
    let Selected { tasks, next } = select(db, queue, selection, before, *limit).await?;
    let next = next.map(|before| keyset::encode(List::DeadLetters, queue, before));
    if params.dry_run {
        return Ok(rdq_spi::Step { count: tasks.len() as u64, next });
    }
    let said = tasks.iter().filter_map(|task| task.now).max();
    let now = said.map_or_else(|| db.clock.latest(), |said| db.clock.advance(instant(said)));
    let mut due_in = params.delay;
    let mut changes = Vec::with_capacity(tasks.len());
    for task in &tasks {
        let mut change = Change::of(task);
        change.wait_until(now.after(due_in));
        change.set("attempt_count", 0_i64);
        change.set("redrive_count", one_more(task.redrive_count));
        for field in ["finished_at", "ended", "kept", "purge_at", "ending"] {
            change.unset(field);
        }
        changes.push(change);
        due_in = due_in.saturating_add(params.spacing);
    }
    // What another step redrove or purged meanwhile is that step's.
    let applied = apply(db, changes).await?;
    let count = applied.iter().filter(|applied| **applied == Applied::Done).count();
    Ok(rdq_spi::Step { count: count as u64, next })
}

pub(crate) async fn purge(db: &Db, params: &PurgeParams, before: i64) -> Step<rdq_spi::Step> {
    let PurgeParams { queue, selection, limit, .. } = params;
    let Selected { tasks, next } = select(db, queue, selection, before, *limit).await?;
    let next = next.map(|before| keyset::encode(List::DeadLetters, queue, before));
    let count = if params.dry_run { tasks.len() as u64 } else { remove(db, &tasks).await? };
    Ok(rdq_spi::Step { count, next })
}

/// Removes finished tasks that are still as they were read; answers how many.
pub(crate) async fn remove(db: &Db, tasks: &[TaskDocument]) -> Step<u64> {
    if tasks.is_empty() {
        return Ok(0);
    }
    let ids: Vec<_> = tasks.iter().map(|task| task.id.as_str()).collect();
    // The number of an end is never drawn again: neither a redriven task nor a new one has it.
    let ends: Vec<_> = tasks.iter().filter_map(|task| task.ended).collect();
    let wanted = doc! { "_id": { "$in": ids }, "ended": { "$in": ends }, "live": false };
    let command =
        doc! { "delete": "tasks", "deletes": [{ "q": wanted, "limit": 0 }], "ordered": false };
    lift(db, tasks.iter().map(|task| task.generation)).await?;
    let reply = db.write(command).await?;
    let removed = u64::try_from(number(&reply, "n")).unwrap_or_default();
    match reply.get_array("writeErrors") {
        Ok(errors) if !errors.is_empty() && removed == 0 => Err(Failure::Contention),
        _ => Ok(removed),
    }
}

async fn select(
    db: &Db,
    queue: &QueueName,
    selection: &Selection,
    before: i64,
    limit: u32,
) -> Step<Selected> {
    let mut wanted = doc! {
        "queue": queue.as_str(), "live": false, "status": DEAD, "ended": { "$lt": before },
    };
    match selection {
        Selection::All => {}
        Selection::Ids(ids) => {
            let ids: Vec<_> = ids.iter().map(TaskId::as_str).collect();
            wanted.insert("_id", doc! { "$in": ids });
        }
        Selection::Filter(_) => {
            let operation = "a selection by filter";
            return Err(Failure::Answer(StorageError::Unsupported { operation }));
        }
    }
    let pipeline = vec![
        doc! { "$match": wanted },
        doc! { "$sort": { "ended": -1 } },
        doc! { "$limit": i64::from(limit) + 1 },
        heads(),
        with_now(),
    ];
    let mut tasks: Vec<TaskDocument> = db.read(pipeline).await?;
    let has_more = tasks.len() > limit as usize;
    tasks.truncate(limit as usize);
    let next = tasks.last().filter(|_| has_more).and_then(|task| task.ended);
    Ok(Selected { tasks, next })
}
