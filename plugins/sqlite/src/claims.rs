//! Claims: how they are taken. Keeping and ending them is elsewhere.

use crate::{
    errors::{Sql, corrupt},
    handoff::Handover,
    history, lanes,
    reports::{self, append},
    rows::{Ending, FullRow, TaskRow},
    transaction::Tx,
    waiting::NextDue,
};
use bytes::Bytes;
use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, Claim, ClaimParams, ClaimQueue, Claimed, Overrides,
    TaskStatus, Timestamp, WorkerId,
};
use rusqlite::params;
use std::time::Duration;

/// What has come due is moved to the lanes of due tasks before a claim, at most so much of each
/// kind: beyond it a claim would keep others waiting, and takes by priority among these.
const PROMOTED_MAX: i64 = 10_000;

/// Serves one call of the storage.
pub(crate) fn claim_all(
    tx: &mut Tx<'_, '_>,
    claims: &[ClaimParams],
) -> Sql<Vec<rdq_spi::Result<Claimed>>> {
    let mut answers = Vec::with_capacity(claims.len());
    for (index, params) in claims.iter().enumerate() {
        let handed = tx.handoffs.take(index);
        answers.push(Ok(claim_due(tx, params, handed)?));
    }
    Ok(answers)
}

fn claim_due(tx: &mut Tx<'_, '_>, params: &ClaimParams, handed: Handover) -> Sql<Claimed> {
    let mut room = Room {
        tasks: (params.limit as usize).saturating_sub(handed.claims.len()),
        bytes: params.bytes_max.saturating_sub(handed.bytes),
        is_first: handed.claims.is_empty(),
    };
    let mut claims = handed.claims;
    let mut queues = queues_in_turn(tx, params)?;
    for (number, _) in &queues {
        promote(tx, *number)?;
    }
    // First each queue gets its share of what is left, then those that have more get the rest.
    let (mut is_rest, mut is_more) = (false, false);
    while room.tasks > 0 && !queues.is_empty() {
        let mut fuller = Vec::new();
        is_more = false;
        let count = queues.len();
        for (index, (number, from)) in queues.into_iter().enumerate() {
            let share = if is_rest { room.tasks } else { room.tasks.div_ceil(count - index) };
            let (taken, more) = take(tx, number, from, params, share, &mut room)?;
            is_more |= more;
            if !taken.is_empty() {
                tx.turns.serve(number);
            }
            if more && taken.len() == share {
                fuller.push((number, from));
            }
            claims.extend(taken);
        }
        (queues, is_rest) = (fuller, true);
    }
    let next_due_in = if is_more { Some(Duration::ZERO) } else { next_due_in(tx, params)? };
    Ok(Claimed { claims, next_due_in })
}

/// What one answer still takes.
struct Room {
    tasks: usize,
    bytes: usize,
    is_first: bool,
}

impl Room {
    /// Whether a task of this weight fits; the first always does. One that does not ends the
    /// claim: those behind it must not overtake it.
    fn takes(&mut self, bytes: usize) -> bool {
        if !self.is_first && bytes > self.bytes {
            self.tasks = 0;
            return false;
        }
        self.is_first = false;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.tasks -= 1;
        true
    }
}

/// The queues that exist, the one first that was served least recently: claims of one task are fair
/// too.
fn queues_in_turn<'p>(
    tx: &mut Tx<'_, '_>,
    params: &'p ClaimParams,
) -> Sql<Vec<(i64, &'p ClaimQueue)>> {
    let mut queues = Vec::with_capacity(params.queues.len());
    for from in &params.queues {
        if let Some(number) = tx.find_queue(&from.queue)? {
            queues.push((number, from));
        }
    }
    if queues.len() > 1 {
        queues.sort_by_key(|(queue, _)| tx.turns.last(*queue));
    }
    Ok(queues)
}

/// Moves what has come due to the lanes of due tasks; for all claims of the transaction, which has
/// one instant.
pub(crate) fn promote(tx: &mut Tx<'_, '_>, queue: i64) -> Sql<()> {
    if !tx.promoted.insert(queue) {
        return Ok(());
    }
    let next = NextDue::read(tx.sql, queue)?;
    for (lane, at) in [(lanes::DELAYED, next.delayed), (lanes::LEASED, next.lease_end)] {
        if at.is_some_and(|at| at <= tx.now) {
            tx.sql.tasks.promote.execute([queue, lane, tx.now.millis(), PROMOTED_MAX])?;
        }
    }
    Ok(())
}

fn next_due_in(tx: &mut Tx<'_, '_>, params: &ClaimParams) -> Sql<Option<Duration>> {
    let mut soonest = None;
    for from in &params.queues {
        if let Some(number) = tx.find_queue(&from.queue)? {
            let due_in = NextDue::read(tx.sql, number)?.due_in(tx.now);
            soonest = soonest.into_iter().chain(due_in).min();
            if soonest == Some(Duration::ZERO) {
                break;
            }
        }
    }
    Ok(soonest)
}

/// Claims up to `share` tasks of a queue, as far as the answer has room. Says whether more are due.
fn take(
    tx: &mut Tx<'_, '_>,
    queue: i64,
    from: &ClaimQueue,
    params: &ClaimParams,
    share: usize,
    room: &mut Room,
) -> Sql<(Vec<Claim>, bool)> {
    // Read first, written after: writing moves what is being read.
    let (due, more) = read_due(tx, queue, share.min(room.tasks), room)?;
    let mut claims = Vec::with_capacity(due.len());
    for (full, envelope, attempts) in due {
        claims.push(take_one(tx, from, params, full, envelope, attempts)?);
    }
    Ok((claims, more))
}

type Due = (FullRow, Bytes, Vec<Attempt>);

fn read_due(
    tx: &mut Tx<'_, '_>,
    queue: i64,
    limit: usize,
    room: &mut Room,
) -> Sql<(Vec<Due>, bool)> {
    let sql = &mut *tx.sql;
    // One more says whether there is more.
    let rows_max = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let mut rows = sql.tasks.ready_tasks.query([queue, rows_max])?;
    let mut due = Vec::with_capacity(limit.min(1_000));
    while let Some(row) = rows.next()? {
        if due.len() == limit {
            return Ok((due, true));
        }
        let mut full = FullRow::read(row)?;
        let envelope = match full.envelope.take() {
            Some(envelope) => envelope,
            None => sql.tasks.body.query_row([full.row.task], crate::rows::body)?,
        };
        let attempts =
            history::for_claim(&mut sql.history.newest_attempts, full.row.task, &full.row.history)?;
        let mut bytes = crate::rows::answer_bytes(&full, &envelope, &attempts);
        if full.row.status == TaskStatus::InFlight {
            let lapse = reports::lease_expired();
            bytes += lapse.error.as_ref().map_or(0, AttemptError::len_bytes);
        }
        if !room.takes(bytes) {
            return Ok((due, true));
        }
        due.push((full, envelope, attempts));
    }
    Ok((due, false))
}

/// Claims a task. The lapsed claim of another holder becomes a record of the history with it.
fn take_one(
    tx: &mut Tx<'_, '_>,
    from: &ClaimQueue,
    params: &ClaimParams,
    mut full: FullRow,
    envelope: Bytes,
    mut attempts: Vec<Attempt>,
) -> Sql<Claim> {
    let row = &mut full.row;
    let before = row.status;
    if before == TaskStatus::InFlight {
        append(tx, row, AttemptOutcome::LeaseExpired, &reports::lease_expired())?;
        row.lease_expired_count = row.lease_expired_count.saturating_add(1);
        let sql = &mut tx.sql.history.newest_attempts;
        attempts = history::for_claim(sql, row.task, &row.history)?;
    }
    let lease = lease_of(params, &row.overrides, from);
    let end: Timestamp = tx.now.after(lease);
    row.generation = tx.next_generation();
    row.ending = Ending::None;
    row.claimed_at = Some(tx.now);
    row.claimed_by = Some(params.worker_id.clone());
    row.next_attempt_at = None;
    row.lease_until(end);
    if before == TaskStatus::Pending {
        claim_pending(tx, row, end)?;
    } else {
        tx.put(row, before)?;
    }
    tx.hint(row.queue, end);
    let (token, generation) = (tx.token(row.task, row.generation), row.generation);
    let task = full.into_task(from.queue.clone(), envelope, attempts);
    Ok(Claim { task, token, generation, lease })
}

/// The worker's lease, else the task's, else the queue's.
pub(crate) fn lease_of(params: &ClaimParams, overrides: &Overrides, from: &ClaimQueue) -> Duration {
    params.lease.or(overrides.lease).unwrap_or(from.lease).min(from.lease_max)
}

/// Writes the claim of a pending task, and nothing else of it.
fn claim_pending(tx: &mut Tx<'_, '_>, row: &TaskRow, end: Timestamp) -> Sql<()> {
    let changed = tx.sql.tasks.claim_task.execute(params![
        row.task,
        end.millis(),
        row.generation,
        tx.now.millis(),
        row.claimed_by.as_ref().map(WorkerId::as_str),
    ])?;
    if changed != 1 {
        return Err(corrupt("task"));
    }
    tx.count(row.queue, Some(TaskStatus::Pending), Some(TaskStatus::InFlight));
    Ok(())
}
