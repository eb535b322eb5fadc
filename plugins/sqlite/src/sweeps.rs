//! Maintenance of a queue: what has expired dies, and what was kept long enough goes.

use crate::{
    errors::Sql,
    holding::die,
    lanes, reports,
    rows::{self, Ending, TaskRow},
    transaction::Tx,
};
use rdq_spi::{Age, StaleDetail, SweepParams, Swept, TaskStatus, Timestamp};
use rusqlite::params;

/// One bounded step.
pub(crate) fn sweep(tx: &mut Tx<'_, '_>, params: &SweepParams) -> Sql<Swept> {
    let mut swept = Swept::default();
    if let Some(queue) = tx.find_queue(&params.queue)? {
        // One more than may be done says whether there is more.
        let mut left = i64::from(params.limit) + 1;
        if params.expire {
            swept.expired = expire(tx, queue, &mut left)?;
        }
        swept.removed = remove(tx, queue, params, &mut left)?;
        swept.more = left == 0;
    }
    tx.forget_empty_queues()?;
    Ok(swept)
}

/// Takes so much of what there is, and leaves the last one of `left` undone.
fn within<T>(left: &mut i64, mut found: Vec<T>) -> Vec<T> {
    *left -= i64::try_from(found.len()).unwrap_or(i64::MAX);
    if *left <= 0 {
        *left = 0;
        found.pop();
    }
    found
}

fn expire(tx: &mut Tx<'_, '_>, queue: i64, left: &mut i64) -> Sql<u64> {
    let now = tx.now.millis();
    let found = tx
        .sql
        .tasks
        .expired_tasks
        .query_map(params![queue, now, *left], TaskRow::read)?
        .collect::<Sql<Vec<_>>>()?;
    let expired = within(left, found);
    let count = expired.len() as u64;
    for mut row in expired {
        let before = row.status;
        die(tx, &mut row, &reports::expired())?;
        if before == TaskStatus::InFlight {
            row.ending = Ending::Stale(StaleDetail::Expired);
        }
        tx.put(&row, before)?;
    }
    Ok(count)
}

fn remove(tx: &mut Tx<'_, '_>, queue: i64, params: &SweepParams, left: &mut i64) -> Sql<u64> {
    let mut removed = 0;
    for (status, age) in [
        (TaskStatus::Succeeded, params.succeeded_older_than),
        (TaskStatus::Cancelled, params.cancelled_older_than),
    ] {
        let Some(age) = age else { continue };
        let sql = &mut tx.sql.tasks.finished_tasks;
        let found = old_ones(sql, params![queue, lanes::finished(status), *left], age, tx.now)?;
        removed += remove_all(tx, queue, status, within(left, found))?;
    }
    let Some(dead) = params.dead else { return Ok(removed) };
    if let Some(kept) = dead.queue {
        let sql = &mut tx.sql.tasks.dead_tasks_of_queue;
        let found = old_ones(sql, params![queue, *left], Age::LongerThan(kept), tx.now)?;
        removed += remove_all(tx, queue, TaskStatus::Dead, within(left, found))?;
    }
    let now = tx.now.millis();
    let found = tx
        .sql
        .tasks
        .purgeable_tasks
        .query_map(params![queue, now, *left], |row| row.get(0))?
        .collect::<Sql<Vec<i64>>>()?;
    removed += remove_all(tx, queue, TaskStatus::Dead, within(left, found))?;
    Ok(removed)
}

/// The tasks of a statement that answers them by their end, up to the first that is too young.
fn old_ones(
    sql: &mut rusqlite::Statement<'_>,
    params: &[&dyn rusqlite::ToSql],
    age: Age,
    now: Timestamp,
) -> Sql<Vec<i64>> {
    let mut rows = sql.query(params)?;
    let mut old = Vec::new();
    while let Some(row) = rows.next()? {
        let is_old = rows::timestamp(row, 1)?.is_some_and(|finished_at| match age {
            Age::LongerThan(age) => finished_at.after(age) <= now,
            Age::Before(instant) => finished_at < instant,
        });
        if !is_old {
            break;
        }
        old.push(row.get(0)?);
    }
    Ok(old)
}

fn remove_all(tx: &mut Tx<'_, '_>, queue: i64, status: TaskStatus, tasks: Vec<i64>) -> Sql<u64> {
    let count = tasks.len() as u64;
    tasks.into_iter().try_for_each(|task| tx.remove(task, queue, status))?;
    Ok(count)
}
