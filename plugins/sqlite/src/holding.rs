//! What a holder does with its claim: keep it or end it. And a cancellation, which ends it for it.

use crate::{
    errors::Sql,
    lanes,
    reports::append,
    rows::{Ending, TaskRow, filled},
    token::Token,
    transaction::Tx,
};
use rdq_spi::{
    AttemptOutcome, AttemptReport, Cancelled, ClaimRef, ExtendParams, Extended, Outcome,
    Resolution, Resolved, Result, StaleDetail, StorageError, TaskId, TaskStatus,
};
use rusqlite::{OptionalExtension as _, params};

/// Ends a claim.
pub(crate) fn resolve(tx: &mut Tx<'_, '_>, resolution: &Resolution) -> Sql<Result<Resolved>> {
    let Resolution { claim, call, outcome, strict } = resolution;
    let ended = match outcome {
        Outcome::Succeed { forget: true, .. } => forget_plainly(tx, claim, *strict)?,
        outcome if is_plain_success(outcome) => complete_plainly(tx, claim, *call, *strict)?,
        _ => false,
    };
    if ended {
        let status = TaskStatus::Succeeded;
        return Ok(Ok(Resolved { status, next_attempt_at: None, replayed: false }));
    }
    let mut row = match find(tx, claim)? {
        Ok(row) => row,
        Err(error) => return Ok(Err(error)),
    };
    if row.status != TaskStatus::InFlight || row.ending != Ending::None {
        return Ok(match row.ending {
            Ending::Resolved(first, status) if first == *call => Ok(Resolved {
                status,
                next_attempt_at: row.next_attempt_at.filter(|_| status == TaskStatus::Pending),
                replayed: true,
            }),
            Ending::Stale(detail) => Err(stale(claim, Some(detail))),
            Ending::Resolved(..) | Ending::None => Err(stale(claim, None)),
        });
    }
    if *strict && row.has_lapsed(tx.now) {
        return Ok(Err(stale(claim, None)));
    }
    if let Outcome::Succeed { forget: true, .. } = outcome {
        tx.remove(row.task, row.queue, row.status)?;
        let status = TaskStatus::Succeeded;
        return Ok(Ok(Resolved { status, next_attempt_at: None, replayed: false }));
    }
    apply(tx, &mut row, outcome)?;
    row.ending = Ending::Resolved(*call, row.status);
    tx.put(&row, TaskStatus::InFlight)?;
    let next_attempt_at = row.next_attempt_at.filter(|_| row.status == TaskStatus::Pending);
    Ok(Ok(Resolved { status: row.status, next_attempt_at, replayed: false }))
}

/// Whether there is nothing to tell of a success but that it happened.
fn is_plain_success(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Succeed { attempt, result, forget: false } => {
            attempt.error.is_none() && attempt.extra.is_empty() && result.is_empty()
        }
        _ => false,
    }
}

/// Ends a claim as most end, in one statement. It does what [`apply`] does, or nothing at all where
/// anything is unusual: then the task has to be looked at.
fn complete_plainly(
    tx: &mut Tx<'_, '_>,
    claim: &ClaimRef,
    call: rdq_spi::Call,
    strict: bool,
) -> Sql<bool> {
    let Some(token) = Token::decode(&claim.token).filter(|token| token.store_id == tx.store_id)
    else {
        return Ok(false);
    };
    let finish_seq = tx.next_finish_seq();
    let changed = tx.sql.tasks.complete_task.execute(params![
        token.task,
        claim.task_id.as_str(),
        token.generation,
        finish_seq,
        Ending::Resolved(call, TaskStatus::Succeeded).encode(),
        tx.now.millis(),
        strict,
    ])?;
    if changed == 0 {
        return Ok(false);
    }
    let queue = lanes::queue_of(token.task);
    tx.count(queue, Some(TaskStatus::InFlight), Some(TaskStatus::Succeeded));
    Ok(true)
}

/// Removes the task of a live claim, in one statement, or does nothing: then the task has to be
/// looked at.
fn forget_plainly(tx: &mut Tx<'_, '_>, claim: &ClaimRef, strict: bool) -> Sql<bool> {
    let Some(token) = Token::decode(&claim.token).filter(|token| token.store_id == tx.store_id)
    else {
        return Ok(false);
    };
    let changed = tx.sql.tasks.forget_task.execute(params![
        token.task,
        claim.task_id.as_str(),
        token.generation,
        strict,
        tx.now.millis(),
    ])?;
    if changed == 1 {
        tx.count(lanes::queue_of(token.task), Some(TaskStatus::InFlight), None);
    }
    Ok(changed == 1)
}

fn apply(tx: &mut Tx<'_, '_>, row: &mut TaskRow, outcome: &Outcome) -> Sql<()> {
    match outcome {
        Outcome::Succeed { attempt, result, forget: _ } => {
            append(tx, row, AttemptOutcome::Success, attempt)?;
            if let Some(result) = filled(result) {
                tx.sql.tasks.put_result.execute(params![row.task, result])?;
            }
            row.finish(TaskStatus::Succeeded, tx.next_finish_seq(), tx.now);
        }
        Outcome::Retry { attempt, due } => {
            append(tx, row, AttemptOutcome::RetryableFailure, attempt)?;
            wait_until(tx, row, due.resolve(tx.now));
        }
        Outcome::Die { attempt } => die(tx, row, attempt)?,
        Outcome::GiveBack { due } => wait_until(tx, row, due.resolve(tx.now).max(tx.now)),
    }
    Ok(())
}

fn wait_until(tx: &mut Tx<'_, '_>, row: &mut TaskRow, due: rdq_spi::Timestamp) {
    row.wait_until(due, tx.now);
    tx.hint(row.queue, due);
}

/// Makes a task a dead letter that died of this.
pub(crate) fn die(tx: &mut Tx<'_, '_>, row: &mut TaskRow, attempt: &AttemptReport) -> Sql<()> {
    append(tx, row, AttemptOutcome::PermanentFailure, attempt)?;
    row.final_error_type = attempt.error.as_ref().map(|error| error.error_type.clone());
    row.finish(TaskStatus::Dead, tx.next_finish_seq(), tx.now);
    Ok(())
}

/// Keeps a claim.
pub(crate) fn extend(tx: &mut Tx<'_, '_>, params: &ExtendParams) -> Sql<Result<Extended>> {
    let ExtendParams { claim, lease, held_max, progress, strict } = params;
    let mut row = match find(tx, claim)? {
        Ok(row) => row,
        Err(error) => return Ok(Err(error)),
    };
    if row.status != TaskStatus::InFlight || row.ending != Ending::None {
        let detail = match row.ending {
            Ending::Stale(detail) => Some(detail),
            Ending::Resolved(..) | Ending::None => None,
        };
        return Ok(Err(stale(claim, detail)));
    }
    if *strict && row.has_lapsed(tx.now) {
        return Ok(Err(stale(claim, None)));
    }
    let mut end = tx.now.after(*lease);
    if let (Some(held_max), Some(claimed_at)) = (held_max, row.claimed_at) {
        end = end.min(claimed_at.after(*held_max));
    }
    if let Some(progress) = progress {
        tx.sql.tasks.put_progress.execute(params![row.task, filled(progress)])?;
    }
    row.lease_until(end);
    tx.put(&row, TaskStatus::InFlight)?;
    tx.hint(row.queue, end);
    Ok(Ok(Extended { lease_expires_at: end, remaining: end.since(tx.now) }))
}

/// Ends a task for good, whoever holds it.
pub(crate) fn cancel(tx: &mut Tx<'_, '_>, task: &TaskId) -> Sql<Result<Cancelled>> {
    let Some(mut row) = find_by_id(tx, task)? else {
        return Ok(Err(StorageError::NotFound { task_id: task.clone() }));
    };
    let before = row.status;
    if before.is_terminal() {
        return Ok(Ok(Cancelled { status: before, changed: false }));
    }
    if before == TaskStatus::InFlight {
        append(tx, &mut row, AttemptOutcome::Cancelled, &AttemptReport::default())?;
        row.ending = Ending::Stale(StaleDetail::Cancelled);
    }
    row.finish(TaskStatus::Cancelled, tx.next_finish_seq(), tx.now);
    tx.put(&row, before)?;
    Ok(Ok(Cancelled { status: TaskStatus::Cancelled, changed: true }))
}

/// The task whose newest claim this is.
fn find(tx: &mut Tx<'_, '_>, claim: &ClaimRef) -> Sql<Result<TaskRow>> {
    let token = Token::decode(&claim.token).filter(|token| token.store_id == tx.store_id);
    if let Some(token) = token {
        let row = tx.sql.tasks.task.query_row([token.task], TaskRow::read).optional()?;
        if let Some(row) = row.filter(|row| row.id == claim.task_id) {
            let is_newest = row.generation == token.generation;
            return Ok(if is_newest { Ok(row) } else { Err(stale(claim, None)) });
        }
    }
    // Not a token of this task; but is there one?
    Ok(Err(match find_by_id(tx, &claim.task_id)? {
        Some(_) => stale(claim, None),
        None => StorageError::NotFound { task_id: claim.task_id.clone() },
    }))
}

fn find_by_id(tx: &mut Tx<'_, '_>, task: &TaskId) -> Sql<Option<TaskRow>> {
    tx.sql.tasks.task_by_id.query_row([task.as_str()], TaskRow::read).optional()
}

fn stale(claim: &ClaimRef, detail: Option<StaleDetail>) -> StorageError {
    StorageError::StaleClaim { task_id: claim.task_id.clone(), detail }
}
