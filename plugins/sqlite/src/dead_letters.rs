//! Steps over dead letters, newest first: redrives and purges. A step remembers how far down the
//! order of deaths it came, so what dies while it runs is above it and not of its selection.

use crate::{
    errors::Sql,
    lanes,
    rows::{Ending, FullRow, TaskRow},
    transaction::Tx,
};
use rdq_spi::{
    DlqFilter, PurgeParams, QueueName, RedriveParams, Result, Selection, Step, StorageError,
    TaskStatus,
    keyset::{self, List},
};
use rusqlite::OptionalExtension as _;
use std::collections::BTreeMap;

/// A step looks at so many dead letters at most: the writer serves others in between.
const EXAMINED_MAX: usize = 2_000;

/// Makes dead letters pending.
pub(crate) fn redrive(tx: &mut Tx<'_, '_>, params: &RedriveParams) -> Sql<Result<Step>> {
    let RedriveParams { queue, selection, dry_run, position, limit, delay, spacing } = params;
    let before = match keyset::decode(List::DeadLetters, queue, position.as_ref()) {
        Ok(before) => before,
        Err(error) => return Ok(Err(error)),
    };
    let (selected, step) = select(tx, queue, selection, before, *limit)?;
    if !dry_run {
        let mut due_in = *delay;
        for mut row in selected {
            row.ending = Ending::None;
            row.attempt_count = 0;
            row.redrive_count = row.redrive_count.saturating_add(1);
            (row.finished_at, row.purge_at, row.final_error_type) = (None, None, None);
            let due = tx.now.after(due_in);
            row.wait_until(due, tx.now);
            tx.put(&row, TaskStatus::Dead)?;
            tx.hint(row.queue, due);
            due_in = due_in.saturating_add(*spacing);
        }
    }
    Ok(Ok(step))
}

/// Removes dead letters.
pub(crate) fn purge(tx: &mut Tx<'_, '_>, params: &PurgeParams) -> Sql<Result<Step>> {
    let PurgeParams { queue, selection, dry_run, position, limit } = params;
    let before = match keyset::decode(List::DeadLetters, queue, position.as_ref()) {
        Ok(before) => before,
        Err(error) => return Ok(Err::<_, StorageError>(error)),
    };
    let (selected, step) = select(tx, queue, selection, before, *limit)?;
    if !dry_run {
        for row in selected {
            tx.remove(row.task, row.queue, TaskStatus::Dead)?;
        }
    }
    Ok(Ok(step))
}

fn select(
    tx: &mut Tx<'_, '_>,
    name: &QueueName,
    selection: &Selection,
    before: i64,
    limit: u32,
) -> Sql<(Vec<TaskRow>, Step)> {
    let Some(queue) = tx.find_queue(name)? else { return Ok((Vec::new(), Step::default())) };
    let (selected, next) = match selection {
        Selection::Ids(ids) => {
            let mut dead = BTreeMap::new();
            for id in ids {
                let row = tx.sql.tasks.task_by_id.query_row([id.as_str()], TaskRow::read);
                let Some(row) = row.optional()? else { continue };
                if row.queue == queue && row.lane == lanes::DEAD && row.at < before {
                    dead.insert(row.at, row);
                }
            }
            let is_cut = dead.len() > limit as usize;
            let selected: Vec<_> = dead.into_values().rev().take(limit as usize).collect();
            let last = selected.last().map(|row: &TaskRow| row.at);
            (selected, last.filter(|_| is_cut))
        }
        Selection::Filter(filter) => scan(tx, queue, filter, before, limit)?,
        Selection::All => scan(tx, queue, &DlqFilter::default(), before, limit)?,
    };
    let next = next.map(|before| keyset::encode(List::DeadLetters, name, before));
    let count = selected.len() as u64;
    Ok((selected, Step { count, next }))
}

/// The dead letters that match, and where to go on.
fn scan(
    tx: &mut Tx<'_, '_>,
    queue: i64,
    filter: &DlqFilter,
    before: i64,
    limit: u32,
) -> Sql<(Vec<TaskRow>, Option<i64>)> {
    let mut rows = tx.sql.tasks.dead_tasks.query([queue, before])?;
    let (mut selected, mut last, mut examined) = (Vec::new(), None, 0);
    while let Some(row) = rows.next()? {
        if selected.len() >= limit as usize || examined == EXAMINED_MAX {
            return Ok((selected, last));
        }
        let full = FullRow::read(row)?;
        if is_older_than(filter, &full.row) {
            break;
        }
        examined += 1;
        last = Some(full.row.at);
        if matches(filter, &full) {
            selected.push(full.row);
        }
    }
    Ok((selected, None))
}

/// Whether nothing further down can match: dead letters come by their death.
pub(crate) fn is_older_than(filter: &DlqFilter, row: &TaskRow) -> bool {
    filter.dead_from.is_some_and(|from| row.finished_at.is_some_and(|at| at < from))
}

/// Whether the filter lets a dead letter through.
pub(crate) fn matches(filter: &DlqFilter, full: &FullRow) -> bool {
    let DlqFilter { error_type, handler_ref, dead_from, dead_to } = filter;
    let row = &full.row;
    (error_type.is_none() || *error_type == row.final_error_type)
        && handler_ref.as_deref().is_none_or(|wanted| wanted == full.handler_ref.as_str())
        && dead_from.is_none_or(|from| row.finished_at.is_some_and(|at| at >= from))
        && dead_to.is_none_or(|to| row.finished_at.is_some_and(|at| at < to))
}
