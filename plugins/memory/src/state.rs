//! Everything that is stored, and the ways to reach and change a task. One lock guards it, so it is
//! plain data; each call gets the instant at which it happens.

use crate::{
    entry::Entry,
    ledger::Mutations,
    locks::Lock,
    queue::Queue,
    records::Slot,
    streams::EventLog,
    token::RunId,
    undo::{Undo, UndoLog},
};
use rdq_spi::{
    LockName, QueueConfig, QueueName, QueueRecord, QueueStats, RecordKey, Result, StorageError,
    StreamName, TaskId, Timestamp, Topic,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) run: RunId,
    /// Tasks by admission.
    pub(crate) entries: HashMap<u64, Box<Entry>, BuildHasherDefault<ByNumber>>,
    /// Admissions by id.
    pub(crate) ids: HashMap<TaskId, u64>,
    /// The queues that hold tasks.
    pub(crate) queues: BTreeMap<QueueName, Queue>,
    records: BTreeMap<QueueName, QueueRecord>,
    secrets: HashMap<String, Vec<u8>>,
    pub(crate) streams: HashMap<StreamName, EventLog>,
    pub(crate) locks: HashMap<LockName, Lock>,
    pub(crate) slots: BTreeMap<RecordKey, Slot>,
    pub(crate) mutations: Mutations,
    pub(crate) undo: UndoLog,
    /// Whom to wake after the step.
    pub(crate) wakes: Vec<Topic>,
    pub(crate) counters: Counters,
    /// The queues with news for those who wait.
    news: Vec<QueueName>,
}

/// Numbers that only grow, across the whole store: no two tasks, claims or deaths share one, and
/// none comes back when a task is removed.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    admitted: u64,
    finished: u64,
    generation: i64,
    served: u64,
    records: u64,
}

impl Counters {
    pub(crate) fn next_admitted(&mut self) -> u64 {
        self.admitted += 1;
        self.admitted
    }

    pub(crate) fn next_finished(&mut self) -> u64 {
        self.finished += 1;
        self.finished
    }

    pub(crate) fn next_generation(&mut self) -> i64 {
        self.generation += 1;
        self.generation
    }

    pub(crate) fn next_record(&mut self) -> u64 {
        self.records += 1;
        self.records
    }

    /// The newest record's.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn next_served(&mut self) -> u64 {
        self.served += 1;
        self.served
    }
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            run: RunId::random(),
            entries: HashMap::default(),
            ids: HashMap::new(),
            queues: BTreeMap::new(),
            records: BTreeMap::new(),
            secrets: HashMap::new(),
            streams: HashMap::new(),
            locks: HashMap::new(),
            slots: BTreeMap::new(),
            mutations: Mutations::default(),
            undo: UndoLog::default(),
            wakes: Vec::new(),
            counters: Counters::default(),
            news: Vec::new(),
        }
    }

    /// The task, if there is one.
    pub(crate) fn find(&self, task: &TaskId) -> Result<&Entry> {
        let entry = self.ids.get(task).and_then(|admitted| self.entries.get(admitted));
        entry.map(|entry| &**entry).ok_or_else(|| StorageError::NotFound { task_id: task.clone() })
    }

    /// Puts in a new task.
    pub(crate) fn insert(&mut self, entry: Box<Entry>, now: Timestamp) {
        self.undo.note(|| Undo::Task(entry.admitted, None));
        let queue = self.queues.entry(entry.task.queue.clone()).or_default();
        queue.promote(now);
        queue.admitted.insert(entry.admitted);
        queue.place(&entry);
        note(&mut self.news, queue, &entry.task.queue);
        self.ids.insert(entry.task.id.clone(), entry.admitted);
        self.entries.insert(entry.admitted, entry);
    }

    /// Changes a task, and its place in its queue with it. Every change of a stored task goes
    /// through here, so that the two cannot part.
    pub(crate) fn change<T>(
        &mut self,
        admitted: u64,
        now: Timestamp,
        change: impl FnOnce(&mut Entry, &mut Counters) -> T,
    ) -> Option<T> {
        let entry = self.entries.get_mut(&admitted)?;
        let queue = self.queues.get_mut(&entry.task.queue)?;
        self.undo.note(|| Undo::Task(admitted, Some(entry.clone())));
        queue.promote(now);
        queue.displace(entry);
        let answer = change(entry, &mut self.counters);
        queue.place(entry);
        note(&mut self.news, queue, &entry.task.queue);
        Some(answer)
    }

    /// Removes a task, and its queue if that was its last one.
    pub(crate) fn remove(&mut self, admitted: u64) {
        let Some(entry) = self.entries.remove(&admitted) else { return };
        self.undo.note(|| Undo::Task(admitted, Some(entry.clone())));
        self.ids.remove(&entry.task.id);
        if let Some(queue) = self.queues.get_mut(&entry.task.queue) {
            queue.displace(&entry);
            queue.admitted.remove(&admitted);
            if queue.admitted.is_empty() {
                self.queues.remove(&entry.task.queue);
            }
        }
    }

    /// The queue, with all that has fallen due in its place; `None` if it holds no task.
    pub(crate) fn queue(&mut self, name: &QueueName, now: Timestamp) -> Option<&mut Queue> {
        let queue = self.queues.get_mut(name)?;
        queue.promote(now);
        note(&mut self.news, queue, name);
        Some(queue)
    }

    /// When something of these queues is due: now if it is already.
    pub(crate) fn next_due_at<'a>(
        &mut self,
        queues: impl IntoIterator<Item = &'a QueueName>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let due_at = queues.into_iter().filter_map(|name| self.queue(name, now)?.next_due_at(now));
        due_at.min()
    }

    /// When the next timer of these queues ends.
    pub(crate) fn next_timer(&self, queues: &[QueueName]) -> Option<Timestamp> {
        queues.iter().filter_map(|name| self.queues.get(name)?.next_timer()).min()
    }

    /// What to tell those who wait: a queue, and when a task of it may be due.
    pub(crate) fn take_news(&mut self, now: Timestamp) -> Vec<(QueueName, Timestamp)> {
        if self.news.is_empty() {
            return Vec::new();
        }
        let queues = &mut self.queues;
        let news = self.news.drain(..).filter_map(|name| {
            let at = queues.get_mut(&name)?.take_news(now)?;
            Some((name, at))
        });
        news.collect()
    }

    pub(crate) fn stats(&mut self, name: &QueueName, now: Timestamp) -> QueueStats {
        self.queue(name, now);
        let Some(queue) = self.queues.get(name) else { return QueueStats::default() };
        let pending = |admitted| {
            let entry = self.entries.get(&admitted);
            entry.is_some_and(|entry| entry.task.next_attempt_at.is_some())
        };
        queue.stats(now, pending)
    }

    pub(crate) fn queue_names(&self, after: Option<&QueueName>, limit: u32) -> Vec<QueueName> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = (after.map_or(Unbounded, Excluded), Unbounded);
        let limit = limit as usize;
        // The first of each kind are enough: what is beyond them is beyond the page.
        let with_tasks = self.queues.range::<QueueName, _>(from).map(|(name, _)| name).take(limit);
        let stored = self.records.range::<QueueName, _>(from).map(|(name, _)| name).take(limit);
        let names: BTreeSet<_> = with_tasks.chain(stored).collect();
        names.into_iter().take(limit).cloned().collect()
    }

    pub(crate) fn put_queue(
        &mut self,
        queue: QueueName,
        config: QueueConfig,
        now: Timestamp,
    ) -> QueueRecord {
        let record = QueueRecord { queue: queue.clone(), config, updated_at: now };
        self.records.insert(queue, record.clone());
        record
    }

    pub(crate) fn queue_records(&self) -> Vec<QueueRecord> {
        self.records.values().cloned().collect()
    }

    pub(crate) fn delete_queue(&mut self, queue: QueueName) -> Result<bool> {
        if self.queues.contains_key(&queue) {
            return Err(StorageError::QueueNotEmpty { queue });
        }
        Ok(self.records.remove(&queue).is_some())
    }

    pub(crate) fn shared_secret(&mut self, name: &str, candidate: Vec<u8>) -> Vec<u8> {
        self.secrets.entry(name.to_owned()).or_insert(candidate).clone()
    }
}

/// Notes a queue that has news, once.
fn note(news: &mut Vec<QueueName>, queue: &Queue, name: &QueueName) {
    if queue.has_news() && news.last() != Some(name) {
        news.push(name.clone());
    }
}

/// Spreads admission numbers over a table. Nobody outside chooses them, so it need not withstand
/// chosen ones.
#[derive(Debug, Default)]
pub(crate) struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write_u64(&mut self, number: u64) {
        self.0 = number.wrapping_mul(0x9e37_79b9_7f4a_7c15); // 2^64 / the golden ratio
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
