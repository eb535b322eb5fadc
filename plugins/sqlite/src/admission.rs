//! Admission of tasks. The engine has checked them; here an id is admitted once.

use crate::{
    errors::Sql,
    handoff::{self, Taker},
    history::{self, Kept},
    lanes,
    rows::{self, filled},
    transaction::Tx,
};
use rdq_spi::{Admission, NewTask, Result, StorageError, TaskStatus, Timestamp, duration_number};
use rusqlite::{OptionalExtension as _, params};

/// Serves one call.
pub(crate) fn enqueue_all(tx: &mut Tx<'_, '_>, tasks: &[NewTask]) -> Sql<Vec<Result<Admission>>> {
    let taker = handoff::taker(tx, tasks)?;
    tasks.iter().map(|new| enqueue(tx, new, taker)).collect()
}

/// Admits a task, for this claim if there is one that takes it.
pub(crate) fn enqueue(
    tx: &mut Tx<'_, '_>,
    new: &NewTask,
    taker: Option<Taker>,
) -> Sql<Result<Admission>> {
    // Looked for and not made: a refused task leaves no queue behind.
    let found = tx.find_queue(&new.queue)?;
    let queue = match found {
        Some(queue) => queue,
        None => match admitted_before(tx, new, None)? {
            Some(answer) => return Ok(answer),
            None => match tx.queue(&new.queue)? {
                Some(queue) => queue,
                None => return Ok(Err(too_many_queues())),
            },
        },
    };
    let due = new.due.resolve(tx.now);
    let inserted = match taker.filter(|_| due <= tx.now) {
        Some(taker) => handoff::insert_claimed(tx, new, queue, due, taker)?,
        None => insert(tx, new, queue, due)?,
    };
    if inserted {
        return Ok(Ok(Admission { created: true, status: TaskStatus::Pending }));
    }
    let before = admitted_before(tx, new, Some(queue))?;
    // The insert met this id a moment ago, in the same transaction.
    Ok(before.unwrap_or_else(|| Err(StorageError::IdConflict { task_id: new.id.clone() })))
}

/// The answer if the id is there already; `queue` is the new task's.
fn admitted_before(
    tx: &mut Tx<'_, '_>,
    new: &NewTask,
    queue: Option<i64>,
) -> Sql<Option<Result<Admission>>> {
    let before = tx
        .sql
        .tasks
        .task_by_id
        .query_row([new.id.as_str()], |row| Ok((row.get(2)?, rows::status(row, 5)?)))
        .optional()?;
    Ok(before.map(|(before, status)| {
        if queue == Some(before) {
            Ok(Admission { created: false, status })
        } else {
            Err(StorageError::IdConflict { task_id: new.id.clone() })
        }
    }))
}

/// Whether the id was free.
fn insert(tx: &mut Tx<'_, '_>, new: &NewTask, queue: i64, due: Timestamp) -> Sql<bool> {
    let lane = if due <= tx.now { lanes::ready(new.priority) } else { lanes::DELAYED };
    let task = lanes::task_key(queue, tx.next_seq());
    let is_large = rows::is_large(&new.envelope);
    let last_attempt_no = new.attempts.iter().map(|attempt| attempt.attempt_no).max().unwrap_or(0);
    let inserted = tx.sql.tasks.insert_task.execute(params![
        task,
        new.id.as_str(),
        queue,
        lane,
        due.millis(),
        new.attempt_count,
        new.redrive_count,
        new.lease_expired_count,
        last_attempt_no,
        due.millis(),
        new.expires.map(|expires| expires.resolve(tx.now).millis()),
        new.created_at.unwrap_or(tx.now).millis(),
        new.priority,
        new.handler_ref.as_str(),
        new.overrides.max_attempts,
        new.overrides.lease.map(duration_number),
        new.overrides.initial_backoff.map(duration_number),
        new.overrides.retention_dead.map(duration_number),
        filled(&new.progress),
        (!is_large).then_some(&new.envelope[..]),
    ])?;
    if inserted == 0 {
        return Ok(false);
    }
    if is_large {
        tx.sql.tasks.put_body.execute(params![task, &new.envelope[..]])?;
    }
    if !new.attempts.is_empty() {
        let mut kept = Kept::default();
        for attempt in &new.attempts {
            history::append(tx.sql, task, &mut kept, attempt)?;
        }
        let sql = &mut tx.sql.tasks.put_carried_history;
        sql.execute(params![task, kept.in_table, kept.only])?;
    }
    tx.count(queue, None, Some(TaskStatus::Pending));
    tx.hint(queue, due);
    Ok(true)
}

/// The refusal of a queue beyond the last number.
pub(crate) fn too_many_queues() -> StorageError {
    StorageError::Refused {
        operation: "enqueue",
        message: format!("this store holds {} queues and takes no more", lanes::QUEUE_MAX),
    }
}
