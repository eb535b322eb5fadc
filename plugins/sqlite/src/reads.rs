//! What is answered without writing: tasks, pages, counts, names. Each call reads a bounded number
//! of rows, but for counts, which walk entries of an index alone.

use crate::{
    dead_letters::{is_older_than, matches},
    errors::Sql,
    history, lanes,
    reader::Snapshot,
    rows::{FullRow, TaskRow, answer_bytes, body},
    statements::text,
    token::Token,
};
use rdq_spi::{
    ClaimRef, ClaimToken, DlqListParams, HeldClaim, ListParams, Page, QueueName, QueueRecord,
    QueueStats, Result, StorageError, Task, TaskId, TaskStatus, Timestamp,
    keyset::{self, List},
};
use rusqlite::{OptionalExtension as _, Row};
use std::time::Duration;

/// One call looks at so many tasks at most; a page that found little ends there.
const EXAMINED_MAX: usize = 10_000;
/// Priorities among which the oldest due task is looked for.
const PRIORITIES_MAX: usize = 1_000;

/// Which part of a history an answer carries.
#[derive(Debug, Clone, Copy)]
enum Part {
    Whole,
    Final,
    Nothing,
}

impl Snapshot<'_> {
    /// One task, whole.
    pub(crate) fn get(&self, id: &TaskId) -> Sql<Option<Task>> {
        let mut sql = self.db.prepare_cached(text!(task_by_id))?;
        let Some(full) = sql.query_row([id.as_str()], FullRow::read).optional()? else {
            return Ok(None);
        };
        let name = self
            .db
            .prepare_cached(text!(queue_name))?
            .query_row([full.row.queue], |row| Ok(QueueName::stored(row.get_ref(0)?.as_str()?)))?;
        Ok(Some(self.answer(full, &name, Part::Whole)?.0))
    }

    /// A page of a queue's tasks.
    pub(crate) fn list(&self, params: &ListParams) -> Sql<Result<Page>> {
        let ListParams { queue, status, position, limit, bytes_max, include_attempts } = params;
        let before = match keyset::decode(List::Tasks, queue, position.as_ref()) {
            Ok(before) => before,
            Err(error) => return Ok(Err(error)),
        };
        let Some(number) = self.queue(queue)? else { return Ok(Ok(Page::default())) };
        let part = if *include_attempts { Part::Whole } else { Part::Nothing };
        let mut sql = self.db.prepare_cached(text!(tasks_of_queue))?;
        let first = lanes::task_key(number, 0);
        let end = lanes::task_key(number, before.min(lanes::SEQ_MAX));
        let mut page = Filling::new(List::Tasks, queue, *limit, *bytes_max);
        let mut rows = sql.query([first, end])?;
        while let Some(row) = rows.next()? {
            if page.is_full() {
                return Ok(Ok(page.unfinished()));
            }
            let task: i64 = row.get(0)?;
            if status.is_some_and(|status| row.get(5) != Ok(i64::from(status.number()))) {
                page.pass_over(lanes::seq_of(task));
                continue;
            }
            let (task, bytes) = self.answer(FullRow::read(row)?, queue, part)?;
            if !page.takes(task, bytes, lanes::seq_of(row.get(0)?)) {
                return Ok(Ok(page.unfinished()));
            }
        }
        Ok(Ok(page.finished()))
    }

    /// A page of a queue's dead letters.
    pub(crate) fn dlq_list(&self, params: &DlqListParams) -> Sql<Result<Page>> {
        let DlqListParams { queue, filter, position, limit, bytes_max, include_attempts } = params;
        let before = match keyset::decode(List::DeadLetters, queue, position.as_ref()) {
            Ok(before) => before,
            Err(error) => return Ok(Err(error)),
        };
        let Some(number) = self.queue(queue)? else { return Ok(Ok(Page::default())) };
        let part = if *include_attempts { Part::Whole } else { Part::Final };
        let mut sql = self.db.prepare_cached(text!(dead_tasks))?;
        let mut page = Filling::new(List::DeadLetters, queue, *limit, *bytes_max);
        let mut rows = sql.query([number, before])?;
        while let Some(row) = rows.next()? {
            if page.is_full() {
                return Ok(Ok(page.unfinished()));
            }
            let full = FullRow::read(row)?;
            let died = full.row.at;
            if is_older_than(filter, &full.row) {
                break;
            }
            if !matches(filter, &full) {
                page.pass_over(died);
                continue;
            }
            let (task, bytes) = self.answer(full, queue, part)?;
            if !page.takes(task, bytes, died) {
                return Ok(Ok(page.unfinished()));
            }
        }
        Ok(Ok(page.finished()))
    }

    /// A task as it is answered, and what it weighs.
    fn answer(&self, mut full: FullRow, queue: &QueueName, part: Part) -> Sql<(Task, usize)> {
        let TaskRow { task, history: kept, .. } = &full.row;
        let attempts = match part {
            Part::Nothing => Vec::new(),
            Part::Whole => {
                history::whole(&mut *self.db.prepare_cached(text!(attempts))?, *task, kept)?
            }
            Part::Final => {
                let mut sql = self.db.prepare_cached(text!(newest_attempts))?;
                history::newest(&mut sql, *task, kept, 1)?
            }
        };
        let envelope = match full.envelope.take() {
            Some(envelope) => envelope,
            None => self.db.prepare_cached(text!(body))?.query_row([*task], body)?,
        };
        let bytes = answer_bytes(&full, &envelope, &attempts);
        Ok((full.into_task(queue.clone(), envelope, attempts), bytes))
    }

    /// The tokens of these claims, as far as each is its task's newest one.
    pub(crate) fn claims_of(&self, claims: &[HeldClaim]) -> Sql<Vec<Option<ClaimToken>>> {
        let mut sql = self.db.prepare_cached(text!(task_by_id))?;
        claims
            .iter()
            .map(|HeldClaim { task_id, worker_id, generation }| {
                let row = sql.query_row([task_id.as_str()], TaskRow::read).optional()?;
                let newest = row.filter(|row| {
                    row.generation == *generation && row.last_worker.as_ref() == Some(worker_id)
                });
                let store_id = self.store_id;
                Ok(newest.map(|row| {
                    Token { store_id, task: row.task, generation: row.generation }.encode()
                }))
            })
            .collect()
    }

    /// How much is left of each of these claims.
    pub(crate) fn live_claims(&self, claims: &[ClaimRef]) -> Sql<Vec<Option<Duration>>> {
        let mut sql = self.db.prepare_cached(text!(task))?;
        claims
            .iter()
            .map(|claim| {
                let token = Token::decode(&claim.token);
                let Some(token) = token.filter(|token| token.store_id == self.store_id) else {
                    return Ok(None);
                };
                let row = sql.query_row([token.task], TaskRow::read).optional()?;
                let held = row.filter(|row| {
                    row.id == claim.task_id
                        && row.generation == token.generation
                        && row.status == TaskStatus::InFlight
                        && !row.has_lapsed(self.now)
                });
                Ok(held.and_then(|row| row.lease_expires_at).map(|end| end.since(self.now)))
            })
            .collect()
    }

    /// A queue's counts.
    pub(crate) fn stats(&self, name: &QueueName) -> Sql<QueueStats> {
        let Some(queue) = self.queue(name)? else { return Ok(QueueStats::default()) };
        let mut sql = self.db.prepare_cached(text!(counts))?;
        let [pending, in_flight, succeeded, dead, cancelled]: [u64; 5] = sql
            .query_row([queue], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
            })?;
        let later = |lane| -> Sql<u64> {
            let mut sql = self.db.prepare_cached(text!(count_later))?;
            sql.query_row([queue, lane, self.now.millis()], |row| row.get(0))
        };
        let (delayed, held) = (later(lanes::DELAYED)?, later(lanes::LEASED)?);
        let oldest = self.oldest_pending(queue)?;
        Ok(QueueStats {
            ready: pending.saturating_sub(delayed),
            delayed,
            in_flight,
            lapsed: in_flight.saturating_sub(held),
            dead,
            succeeded,
            cancelled,
            oldest_pending_age: oldest.map(|at| self.now.since(at)),
        })
    }

    /// The due time of the pending task that has been due for longest.
    fn oldest_pending(&self, queue: i64) -> Sql<Option<Timestamp>> {
        let timestamp = |row: &Row<'_>| Ok(Timestamp::from_millis(row.get(0)?));
        let mut next_lane = self.db.prepare_cached(text!(next_ready_lane))?;
        let mut first_pending = self.db.prepare_cached(text!(first_pending))?;
        let mut oldest: Option<Timestamp> = None;
        let mut lane = i64::MIN;
        for _ in 0..PRIORITIES_MAX {
            let next = next_lane.query_row([queue, lane], |row| row.get(0)).optional()?;
            let Some(next) = next else { break };
            lane = next;
            // Lapsed tasks may stand before it.
            let first = first_pending.query_row([queue, lane], timestamp).optional()?;
            oldest = oldest.into_iter().chain(first).min();
        }
        // Due, and not yet moved by a claim.
        let first = first_pending.query_row([queue, lanes::DELAYED], timestamp).optional()?;
        Ok(oldest.into_iter().chain(first.filter(|at| *at <= self.now)).min())
    }

    /// Names of queues that hold tasks or have a configuration.
    pub(crate) fn queue_names(&self, after: Option<&QueueName>, limit: u32) -> Sql<Vec<QueueName>> {
        let after = after.map_or("", QueueName::as_str);
        let mut sql = self.db.prepare_cached(text!(queue_names))?;
        let names = sql.query_map(rusqlite::params![after, limit], |row| {
            Ok(QueueName::stored(row.get_ref(0)?.as_str()?))
        })?;
        names.collect()
    }

    /// Every stored configuration.
    pub(crate) fn queue_records(&self) -> Sql<Vec<QueueRecord>> {
        let mut sql = self.db.prepare_cached(text!(queue_records))?;
        let records = sql.query_map([], |row| {
            let config = serde_json::from_str(row.get_ref(1)?.as_str()?);
            Ok(QueueRecord {
                queue: QueueName::stored(row.get_ref(0)?.as_str()?),
                config: config.map_err(|_| crate::errors::corrupt("queue configuration"))?,
                updated_at: Timestamp::from_millis(row.get(2)?),
            })
        })?;
        records.collect()
    }

    fn queue(&self, name: &QueueName) -> Sql<Option<i64>> {
        let mut sql = self.db.prepare_cached(text!(queue_by_name))?;
        sql.query_row([name.as_str()], |row| row.get(0)).optional()
    }
}

/// A page as it fills.
struct Filling<'p> {
    list: List,
    queue: &'p QueueName,
    tasks: Vec<Task>,
    limit: usize,
    bytes_left: usize,
    examined: usize,
    last: Option<i64>,
}

impl<'p> Filling<'p> {
    fn new(list: List, queue: &'p QueueName, limit: u32, bytes_max: usize) -> Self {
        let (tasks, limit) = (Vec::new(), limit as usize);
        Self { list, queue, tasks, limit, bytes_left: bytes_max, examined: 0, last: None }
    }

    fn is_full(&self) -> bool {
        self.tasks.len() >= self.limit || self.examined >= EXAMINED_MAX
    }

    fn pass_over(&mut self, number: i64) {
        self.examined += 1;
        self.last = Some(number);
    }

    /// Takes the task unless the page outgrows its bytes; a first task always fits.
    fn takes(&mut self, task: Task, bytes: usize, number: i64) -> bool {
        if !self.tasks.is_empty() && bytes > self.bytes_left {
            return false;
        }
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        self.tasks.push(task);
        self.pass_over(number);
        true
    }

    fn finished(self) -> Page {
        Page { tasks: self.tasks, next: None }
    }

    fn unfinished(self) -> Page {
        let next = self.last.map(|last| keyset::encode(self.list, self.queue, last));
        Page { tasks: self.tasks, next }
    }
}

/// The refusal of an id that is not there.
pub(crate) fn not_found(task_id: TaskId) -> StorageError {
    StorageError::NotFound { task_id }
}
