//! One write transaction: its instant, its counters, what it changed of the queues' counts, and
//! whom it will wake. What it does to tasks stands in the modules that use it; when it begins and
//! commits is the writer's business.

use crate::{
    clock::{Clock, Mark},
    coordination::{Counter, News, forget_notifications},
    errors::{Sql, corrupt},
    handoff::Handoffs,
    lanes,
    reader::Snapshot,
    rows::TaskRow,
    statements::Statements,
    turns::Turns,
};
use rdq_spi::{ClaimToken, QueueName, StreamName, TaskStatus, Timestamp};
use rusqlite::{Connection, OptionalExtension as _, params};
use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher as _, Hasher as _, RandomState},
    time::Duration,
};

/// The first number that a queue gets.
const FIRST_QUEUE: i64 = 1;
/// Empty queues forgotten in one transaction.
const FORGET_MAX: i64 = 100;

/// A write transaction.
pub(crate) struct Tx<'s, 'c> {
    pub(crate) db: &'c Connection,
    pub(crate) sql: &'s mut Statements<'c>,
    pub(crate) turns: &'s mut Turns,
    /// The storage's now: one instant for the whole transaction.
    pub(crate) now: Timestamp,
    /// When that was.
    pub(crate) begun: Mark,
    pub(crate) store_id: [u8; 8],
    /// Queues whose tasks that have come due by then stand in the lanes of due tasks.
    pub(crate) promoted: BTreeSet<i64>,
    pub(crate) handoffs: Handoffs,
    clock: Clock,
    seq: i64,
    generation: i64,
    finish_seq: i64,
    // Few keys as a rule, and looked up with every task: trees, which hash nothing.
    queues: BTreeMap<QueueName, i64>,
    counts: BTreeMap<i64, [i64; 5]>,
    hints: BTreeMap<i64, Timestamp>,
    pub(crate) streams: BTreeMap<StreamName, Counter>,
    pub(crate) news: News,
    /// Rows that were changed, and changed back since.
    undone: u64,
}

/// Whom a committed transaction wakes.
#[derive(Debug)]
pub(crate) struct Committed {
    pub(crate) hints: Vec<Hint>,
    pub(crate) news: News,
}

/// A queue where something will be due, and how soon.
pub(crate) type Hint = (QueueName, Duration);

impl<'s, 'c> Tx<'s, 'c> {
    /// Reads the clock and the counters. The transaction has begun, so nobody else moves them.
    pub(crate) fn start(
        db: &'c Connection,
        sql: &'s mut Statements<'c>,
        turns: &'s mut Turns,
    ) -> Sql<Self> {
        let begun = Mark::now();
        let (store_id, clock, seq, generation, finish_seq) =
            sql.state.state.query_row([], |row| {
                let clock = Clock { now: row.get(1)?, host_now: row.get(2)? };
                Ok((row.get(0)?, clock.advanced(), row.get(3)?, row.get(4)?, row.get(5)?))
            })?;
        Ok(Self {
            db,
            sql,
            turns,
            begun,
            now: clock.timestamp(),
            store_id,
            clock,
            seq,
            generation,
            finish_seq,
            promoted: BTreeSet::new(),
            handoffs: Handoffs::default(),
            queues: BTreeMap::new(),
            counts: BTreeMap::new(),
            hints: BTreeMap::new(),
            streams: BTreeMap::new(),
            news: News::default(),
            undone: 0,
        })
    }

    /// Writes clock, counters and counts, and says whom to wake once it is committed.
    pub(crate) fn finish(mut self) -> Sql<Committed> {
        forget_notifications(&mut self)?;
        self.put_counts()?;
        self.put_last_offsets()?;
        self.sql.state.put_state.execute(params![
            self.clock.now,
            self.clock.host_now,
            self.seq,
            self.generation,
            self.finish_seq
        ])?;
        let hints: Vec<_> = self.hints.iter().map(|(queue, due)| (*queue, *due)).collect();
        let hints = hints.into_iter();
        let hints = hints
            .map(|(queue, due)| Ok((self.name(queue)?, due.since(self.now))))
            .collect::<Sql<_>>()?;
        Ok(Committed { hints, news: self.news })
    }

    /// Whether there is nothing to commit, if the connection had changed so many rows before.
    pub(crate) fn changed_nothing_since(&self, changes: u64) -> bool {
        self.db.total_changes() - changes == self.undone
    }

    /// The storage's now as it moves on while the transaction runs: for what must not succeed after
    /// an instant that the caller may have seen pass.
    pub(crate) fn moment(&mut self) -> Timestamp {
        self.clock = self.clock.advanced();
        self.clock.timestamp()
    }

    /// What stands in the transaction so far, to be read.
    pub(crate) fn view(&self) -> Snapshot<'c> {
        Snapshot { db: self.db, store_id: self.store_id, now: self.now }
    }

    /// Does all of this or, if it is refused, nothing: then nobody is woken for it either.
    pub(crate) fn all_or_nothing<T, E>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Sql<Result<T, E>>,
    ) -> Sql<Result<T, E>> {
        // What is remembered of the rows so far is written, so that there is nothing to restore.
        self.put_counts()?;
        self.put_last_offsets()?;
        let hints_before = std::mem::take(&mut self.hints);
        let news_before = std::mem::take(&mut self.news);
        let (undone, changes) = (self.undone, self.db.total_changes());
        self.sql.state.savepoint.execute([])?;
        let answer = work(self)?;
        let hints = std::mem::replace(&mut self.hints, hints_before);
        let news = std::mem::replace(&mut self.news, news_before);
        if answer.is_ok() {
            for (queue, due) in hints {
                let soonest = self.hints.entry(queue).or_insert(due);
                *soonest = due.min(*soonest);
            }
            self.news.add(news);
        } else {
            self.sql.state.rollback_to.execute([])?;
            self.undone = undone + (self.db.total_changes() - changes);
            // Queues and streams that were made are not there any more.
            self.queues.clear();
            self.streams.clear();
            self.counts.clear();
        }
        self.sql.state.release.execute([])?;
        Ok(answer)
    }

    /// Writes, so that the commit proves that writing works.
    pub(crate) fn touch(&mut self) -> Sql<()> {
        self.sql.state.touch.execute([]).map(|_| ())
    }

    /// The next number of an admission.
    pub(crate) fn next_seq(&mut self) -> i64 {
        self.seq += 1;
        self.seq
    }

    /// The next claim's generation.
    pub(crate) fn next_generation(&mut self) -> i64 {
        self.generation += 1;
        self.generation
    }

    /// The next number of a task's end.
    pub(crate) fn next_finish_seq(&mut self) -> i64 {
        self.finish_seq += 1;
        self.finish_seq
    }

    /// The token of a claim of this store.
    pub(crate) fn token(&self, task: i64, generation: i64) -> ClaimToken {
        crate::token::Token { store_id: self.store_id, task, generation }.encode()
    }

    /// The queue's number, if it exists.
    pub(crate) fn find_queue(&mut self, name: &QueueName) -> Sql<Option<i64>> {
        if let Some(queue) = self.queues.get(name) {
            return Ok(Some(*queue));
        }
        let found = self
            .sql
            .queues
            .queue_by_name
            .query_row([name.as_str()], |row| row.get(0))
            .optional()?;
        if let Some(queue) = found {
            self.queues.insert(name.clone(), queue);
        }
        Ok(found)
    }

    /// The queue's number; it exists from now on. `None` if there are more than numbers.
    pub(crate) fn queue(&mut self, name: &QueueName) -> Sql<Option<i64>> {
        if let Some(queue) = self.find_queue(name)? {
            return Ok(Some(queue));
        }
        let mut queue =
            self.sql.queues.insert_queue.query_row([name.as_str()], |row| row.get::<_, i64>(0))?;
        if queue > lanes::QUEUE_MAX {
            // The last number is taken. One of a queue that is gone is used again.
            self.delete_queue(queue)?;
            let Some(free) = self.free_queue_number(lanes::QUEUE_MAX)? else { return Ok(None) };
            self.sql.queues.insert_numbered_queue.execute(params![free, name.as_str()])?;
            queue = free;
        }
        self.queues.insert(name.clone(), queue);
        Ok(Some(queue))
    }

    /// A number up to `max` that no queue has. It is looked for from anywhere on, so that one is found
    /// at once if many are free, wherever they are.
    fn free_queue_number(&mut self, max: i64) -> Sql<Option<i64>> {
        let anywhere = RandomState::new().build_hasher().finish() % max.unsigned_abs();
        let anywhere = i64::try_from(anywhere).unwrap_or(0);
        let sql = &mut self.sql.queues;
        let mut after =
            |from| sql.free_queue_number.query_row([from, max], |row| row.get(0)).optional();
        if let Some(free) = after(anywhere)? {
            return Ok(Some(free));
        }
        // Any other is either the first of all numbers or stands after a queue's.
        if sql.queue_name.exists([FIRST_QUEUE])? {
            return sql
                .free_queue_number
                .query_row([FIRST_QUEUE, max], |row| row.get(0))
                .optional();
        }
        Ok(Some(FIRST_QUEUE))
    }

    /// Forgets a queue that holds nothing. Says whether it had a configuration.
    pub(crate) fn delete_queue(&mut self, queue: i64) -> Sql<bool> {
        self.forget_queue(queue);
        self.sql.queues.delete_queue.query_row([queue], |row| row.get(0))
    }

    fn forget_queue(&mut self, queue: i64) {
        // Its number may be another queue's before this transaction ends.
        self.promoted.remove(&queue);
        self.handoffs.forget(queue);
        self.queues.retain(|_, known| *known != queue);
        self.hints.remove(&queue);
        self.turns.forget(queue);
    }

    fn name(&mut self, queue: i64) -> Sql<QueueName> {
        if let Some((name, _)) = self.queues.iter().find(|(_, known)| **known == queue) {
            return Ok(name.clone());
        }
        self.sql
            .queues
            .queue_name
            .query_row([queue], |row| Ok(QueueName::stored(row.get_ref(0)?.as_str()?)))
    }

    /// Counts a task that entered, left, or changed its status.
    pub(crate) fn count(&mut self, queue: i64, from: Option<TaskStatus>, to: Option<TaskStatus>) {
        let counts = self.counts.entry(queue).or_default();
        for (status, change) in [(from, -1), (to, 1)] {
            if let Some(status) = status {
                counts[usize::from(status.number())] += change;
            }
        }
    }

    /// How many tasks the queue holds, by status.
    pub(crate) fn counts(&mut self, queue: i64) -> Sql<[i64; 5]> {
        self.put_counts()?;
        self.sql.queues.counts.query_row([queue], |row| {
            Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?])
        })
    }

    fn put_counts(&mut self) -> Sql<()> {
        for (queue, counts) in std::mem::take(&mut self.counts) {
            let [pending, in_flight, succeeded, dead, cancelled] = counts;
            self.sql
                .queues
                .add_counts
                .execute(params![queue, pending, in_flight, succeeded, dead, cancelled])?;
        }
        Ok(())
    }

    /// Forgets some queues that hold nothing.
    pub(crate) fn forget_empty_queues(&mut self) -> Sql<()> {
        self.put_counts()?;
        let forgotten: Vec<i64> = self
            .sql
            .queues
            .forget_empty_queues
            .query_map([FORGET_MAX], |row| row.get(0))?
            .collect::<Sql<_>>()?;
        // A hint for one of them would look for its name, and there is nothing to be due. The
        // hints of other queues are for other calls of this transaction, and must come.
        for queue in forgotten {
            self.forget_queue(queue);
        }
        Ok(())
    }

    /// Wakes those who wait for the queue, once this is committed.
    pub(crate) fn hint(&mut self, queue: i64, due: Timestamp) {
        if due <= self.now {
            self.handoffs.not_bare(queue);
        }
        let soonest = self.hints.entry(queue).or_insert(due);
        *soonest = due.min(*soonest);
    }

    /// The queues where something is due by what this transaction did.
    pub(crate) fn made_due(&mut self) -> Sql<BTreeSet<QueueName>> {
        let due = self.hints.iter().filter(|(_, due)| **due <= self.now);
        let due: Vec<_> = due.map(|(queue, _)| *queue).collect();
        due.into_iter().map(|queue| self.name(queue)).collect()
    }

    /// Writes a task back as it is now; it was in `from` before.
    pub(crate) fn put(&mut self, row: &TaskRow, from: TaskStatus) -> Sql<()> {
        if row.status != from {
            self.count(row.queue, Some(from), Some(row.status));
        }
        let millis = |at: Option<Timestamp>| at.map(Timestamp::millis);
        let changed = self.sql.tasks.update_task.execute(params![
            row.task,
            row.lane,
            row.at,
            row.status.number(),
            row.generation,
            row.ending.encode(),
            row.attempt_count,
            row.redrive_count,
            row.lease_expired_count,
            row.last_attempt_no,
            millis(row.next_attempt_at),
            millis(row.lease_expires_at),
            millis(row.claimed_at),
            row.claimed_by.as_ref().or(row.last_worker.as_ref()).map(rdq_spi::WorkerId::as_str),
            millis(row.finished_at),
            millis(row.purge_at),
            row.final_error_type,
            row.history.in_table,
            row.history.only,
        ])?;
        if changed == 1 { Ok(()) } else { Err(corrupt("task")) }
    }

    /// Removes a task, and with it its body and history.
    pub(crate) fn remove(&mut self, task: i64, queue: i64, status: TaskStatus) -> Sql<()> {
        if self.sql.tasks.delete_whole_task.execute([task])? == 0 {
            self.sql.tasks.delete_body.execute([task])?;
            self.sql.history.delete_history.execute([task])?;
            self.sql.history.delete_attempts.execute([task])?;
            self.sql.tasks.delete_task.execute([task])?;
        }
        self.count(queue, Some(status), None);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use crate::{SqliteOptions, SqliteStorage, connection, migrations};
    use rdq_spi::{QueueConfig, Storage as _};

    /// A store that has queues of these numbers.
    fn new_store(numbers: &[i64]) -> (tempfile::TempDir, SqliteStorage) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rdq.db");
        let db = connection::open_writer(&path).unwrap();
        migrations::migrate(&db).unwrap();
        for number in numbers {
            let sql = "INSERT INTO queues (queue, name, config, config_updated_at) VALUES (?1, ?2, '{}', 0)";
            db.execute(sql, params![number, format!("queue {number}")]).unwrap();
        }
        let storage = SqliteStorage::start(&path, db, &SqliteOptions::default()).unwrap();
        (dir, storage)
    }

    #[tokio::test]
    async fn a_queue_gets_a_number_after_the_last_one_is_taken() {
        let (_dir, storage) = new_store(&[1, 2, lanes::QUEUE_MAX]);
        for name in ["a", "b", "c"].map(QueueName::stored) {
            storage.put_queue(name.clone(), QueueConfig::default()).await.unwrap();
            assert!(storage.delete_queue(name).await.unwrap());
        }
        let name = QueueName::stored("d");
        storage.put_queue(name.clone(), QueueConfig::default()).await.unwrap();
        assert!(storage.queue_records().await.unwrap().iter().any(|it| it.queue == name));
    }

    #[tokio::test]
    async fn every_free_number_is_found_and_none_where_there_is_none() {
        const MAX: i64 = 4;
        for taken in 0..1 << MAX {
            let is_taken = |number: &i64| taken & (1 << (number - 1)) != 0;
            let numbers: Vec<_> = (FIRST_QUEUE..=MAX).filter(is_taken).collect();
            let (_dir, storage) = new_store(&numbers);
            for _ in 0..8 {
                let free = storage.writer.call("test", 1, |tx| tx.free_queue_number(MAX));
                match free.await.unwrap() {
                    Some(free) => assert!((FIRST_QUEUE..=MAX).contains(&free) && !is_taken(&free)),
                    None => assert_eq!(numbers.len(), 4),
                }
            }
        }
    }
}
