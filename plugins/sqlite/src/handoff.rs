//! Handing tasks over as they are admitted: where a claim of the same transaction waits for a queue
//! of which nothing else is due, its tasks are written with the claim at once, and neither read
//! again nor written twice. It is as if the claim had come right after the admission.

use crate::{
    claims::{lease_of, promote},
    errors::Sql,
    lanes, rows,
    transaction::Tx,
    waiting::NextDue,
};
use bytes::Bytes;
use rdq_spi::{
    Claim, ClaimParams, NewTask, QueueName, Task, TaskStatus, Timestamp, duration_number,
};
use rusqlite::params;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// What a transaction knows of claims that it will serve.
#[derive(Debug, Default)]
pub(crate) struct Handoffs {
    /// By call, and by number within it.
    waiting: BTreeMap<Place, Waiting>,
    /// The call that runs.
    call: usize,
    /// Whether nothing stands in a queue's lanes of due tasks.
    bare: HashMap<i64, bool>,
}

/// A call of the transaction, and which of its claims.
type Place = (usize, usize);

/// A claim from a single queue: one from several has to look which of them is served next.
#[derive(Debug)]
struct Waiting {
    /// Those of its call.
    claims: Arc<[ClaimParams]>,
    index: usize,
    tasks_left: usize,
    bytes_left: usize,
    handed: Vec<Handed>,
}

#[derive(Debug)]
struct Handed {
    /// Its place among what is due: lane, due time, admission.
    place: (i64, i64, i64),
    bytes: usize,
    claim: Claim,
}

/// What a claim was handed.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// In the order of claims.
    pub(crate) claims: Vec<Claim>,
    /// What they weigh in the answer.
    pub(crate) bytes: usize,
}

/// A claim that takes all due tasks of an admission call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taker(Place);

impl Waiting {
    fn params(&self) -> &ClaimParams {
        &self.claims[self.index]
    }
}

impl Handoffs {
    /// These claims are served by this call of the transaction, which has not run yet.
    pub(crate) fn expect(&mut self, call: usize, claims: &Arc<[ClaimParams]>) {
        for (index, params) in claims.iter().enumerate().filter(|(_, it)| it.queues.len() == 1) {
            let waiting = Waiting {
                claims: Arc::clone(claims),
                index,
                tasks_left: params.limit as usize,
                bytes_left: params.bytes_max,
                handed: Vec::new(),
            };
            self.waiting.insert((call, index), waiting);
        }
    }

    /// From now on this call runs.
    pub(crate) fn begin(&mut self, call: usize) {
        self.call = call;
    }

    /// Something of the queue is due.
    pub(crate) fn not_bare(&mut self, queue: i64) {
        self.bare.insert(queue, false);
    }

    /// The queue is no more; its number may be another's.
    pub(crate) fn forget(&mut self, queue: i64) {
        self.bare.remove(&queue);
    }

    /// What this claim of the running call was handed.
    pub(crate) fn take(&mut self, index: usize) -> Handover {
        let Some(Waiting { mut handed, .. }) = self.waiting.remove(&(self.call, index)) else {
            return Handover::default();
        };
        handed.sort_unstable_by_key(|handed| handed.place);
        Handover {
            bytes: handed.iter().map(|handed| handed.bytes).sum(),
            claims: handed.into_iter().map(|handed| handed.claim).collect(),
        }
    }
}

/// Finds a claim that takes all that is due of these, so that none of them overtakes another one,
/// nor anything that is due already.
pub(crate) fn taker(tx: &mut Tx<'_, '_>, tasks: &[NewTask]) -> Sql<Option<Taker>> {
    let Some(first) = tasks.first() else { return Ok(None) };
    if tx.handoffs.waiting.is_empty() || !tasks.iter().all(|task| is_plain(task, &first.queue)) {
        return Ok(None);
    }
    // A queue that does not exist yet is not made for it: the next call finds it.
    let Some(queue) = tx.find_queue(&first.queue)? else { return Ok(None) };
    let due = || tasks.iter().filter(|task| task.due.resolve(tx.now) <= tx.now);
    let (count, bytes) = (due().count(), due().map(|task| task.envelope.len()).sum::<usize>());
    let has_room = |(_, waiting): &(&Place, &Waiting)| {
        waiting.params().queues.iter().any(|from| from.queue == first.queue)
            && waiting.tasks_left >= count
            && waiting.bytes_left >= bytes
    };
    let Some((&taker, _)) = tx.handoffs.waiting.iter().find(has_room) else { return Ok(None) };
    Ok(is_bare(tx, queue)?.then_some(Taker(taker)))
}

/// Of this queue, and new in this store.
fn is_plain(task: &NewTask, queue: &QueueName) -> bool {
    task.queue == *queue
        && task.attempts.is_empty()
        && (task.attempt_count, task.redrive_count, task.lease_expired_count) == (0, 0, 0)
        && task.progress.is_empty()
}

fn is_bare(tx: &mut Tx<'_, '_>, queue: i64) -> Sql<bool> {
    if let Some(known) = tx.handoffs.bare.get(&queue) {
        return Ok(*known);
    }
    promote(tx, queue)?;
    let is_bare = !NextDue::read(tx.sql, queue)?.ready;
    tx.handoffs.bare.insert(queue, is_bare);
    Ok(is_bare)
}

/// Admits a task that is due as its claim leaves it. Says whether its id was free.
pub(crate) fn insert_claimed(
    tx: &mut Tx<'_, '_>,
    new: &NewTask,
    queue: i64,
    due: Timestamp,
    Taker(taker): Taker,
) -> Sql<bool> {
    let task = lanes::task_key(queue, tx.next_seq());
    let Some(waiting) = tx.handoffs.waiting.get(&taker) else { return Ok(false) };
    let params = waiting.params();
    let [from] = params.queues.as_slice() else { return Ok(false) };
    let lease = lease_of(params, &new.overrides, from);
    let (worker_id, end) = (params.worker_id.clone(), tx.now.after(lease));
    let generation = tx.next_generation();
    let expires_at = new.expires.map(|expires| expires.resolve(tx.now));
    let created_at = new.created_at.unwrap_or(tx.now);
    let is_large = rows::is_large(&new.envelope);
    let inserted = tx.sql.tasks.insert_claimed_task.execute(params![
        task,
        new.id.as_str(),
        queue,
        end.millis(),
        generation,
        tx.now.millis(),
        worker_id.as_str(),
        expires_at.map(Timestamp::millis),
        created_at.millis(),
        new.priority,
        new.handler_ref.as_str(),
        new.overrides.max_attempts,
        new.overrides.lease.map(duration_number),
        new.overrides.initial_backoff.map(duration_number),
        new.overrides.retention_dead.map(duration_number),
        (!is_large).then_some(&new.envelope[..]),
    ])?;
    if inserted == 0 {
        return Ok(false);
    }
    if is_large {
        tx.sql.tasks.put_body.execute(params![task, &new.envelope[..]])?;
    }
    tx.count(queue, None, Some(TaskStatus::InFlight));
    tx.hint(queue, end);
    let claim = Claim {
        task: Task {
            id: new.id.clone(),
            queue: new.queue.clone(),
            handler_ref: new.handler_ref.clone(),
            priority: new.priority,
            envelope: new.envelope.clone(),
            overrides: new.overrides,
            status: TaskStatus::InFlight,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            result: Bytes::new(),
            claimed_at: Some(tx.now),
            claimed_by: Some(worker_id),
            next_attempt_at: None,
            lease_expires_at: Some(end),
            expires_at,
            created_at,
            finished_at: None,
            attempts: Vec::new(),
            last_attempt_no: 0,
        },
        token: tx.token(task, generation),
        generation,
        lease,
    };
    if let Some(waiting) = tx.handoffs.waiting.get_mut(&taker) {
        waiting.tasks_left -= 1;
        waiting.bytes_left -= new.envelope.len();
        let place = (lanes::ready(new.priority), due.millis(), task);
        waiting.handed.push(Handed { place, bytes: new.envelope.len(), claim });
    }
    Ok(true)
}
