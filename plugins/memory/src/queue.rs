//! The order of one queue's tasks: who is next, who comes when, who finished when. It holds numbers
//! alone; the tasks are in the state. No call walks more than it answers.

use crate::entry::Entry;
use rdq_spi::{QueueStats, TaskStatus, Timestamp};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// By time, then by admission.
type ByTime = BTreeSet<(Timestamp, u64)>;
/// By the order in which tasks finished; the value is the admission.
type ByFinish = BTreeMap<u64, u64>;

#[derive(Debug)]
pub(crate) struct Queue {
    /// Every task, by admission.
    pub(crate) admitted: BTreeSet<u64>,
    /// What is due, in the order of claims: pending tasks, and those whose lease has lapsed.
    ready: BTreeMap<Reverse<i32>, ByTime>,
    /// What falls due later: delayed tasks, and the ends of leases.
    timers: BTreeMap<(Timestamp, u64), Timer>,
    /// Every timer up to this instant was moved to `ready`.
    promoted: Timestamp,
    /// Unfinished tasks that have an `expires_at`, by that.
    pub(crate) expiring: ByTime,
    pub(crate) succeeded: ByFinish,
    pub(crate) cancelled: ByFinish,
    pub(crate) dead: ByFinish,
    /// Dead letters without a retention of their own.
    pub(crate) dead_inheriting: ByFinish,
    /// Dead letters with one, by its end.
    pub(crate) dead_own: ByTime,
    delayed: u64,
    in_flight: u64,
    /// Of those in `ready`.
    pending_ready: u64,
    lapsed: u64,
    /// When the queue was last claimed from, counted in claims of the whole state.
    pub(crate) served: u64,
    /// The soonest due time that became known, or came, since the last look.
    news: Option<Timestamp>,
}

/// What a timer knows of its task.
#[derive(Debug, Clone, Copy)]
struct Timer {
    priority: i32,
    is_lease: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            admitted: BTreeSet::new(),
            ready: BTreeMap::new(),
            timers: BTreeMap::new(),
            promoted: Timestamp::MIN,
            expiring: BTreeSet::new(),
            succeeded: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            dead: BTreeMap::new(),
            dead_inheriting: BTreeMap::new(),
            dead_own: BTreeSet::new(),
            delayed: 0,
            in_flight: 0,
            pending_ready: 0,
            lapsed: 0,
            served: 0,
            news: None,
        }
    }
}

impl Queue {
    /// Moves what has fallen due to `ready`. Every use of the queue begins with it.
    pub(crate) fn promote(&mut self, now: Timestamp) {
        self.promoted = now.max(self.promoted);
        while let Some(first) = self.timers.first_entry() {
            let (at, admitted) = *first.key();
            if at > self.promoted {
                return;
            }
            let timer = first.remove();
            self.news = Some(self.news.map_or(at, |news| news.min(at)));
            self.ready.entry(Reverse(timer.priority)).or_default().insert((at, admitted));
            if timer.is_lease {
                self.lapsed += 1;
            } else {
                self.delayed -= 1;
                self.pending_ready += 1;
            }
        }
    }

    /// Enters the task where its status says.
    pub(crate) fn place(&mut self, entry: &Entry) {
        let task = &entry.task;
        if let Some(at) = entry.due_at() {
            self.place_due(entry, at);
            if let Some(expires_at) = task.expires_at {
                self.expiring.insert((expires_at, entry.admitted));
            }
            return;
        }
        if let Some(order) = self.finished_in(task.status) {
            order.insert(entry.finished, entry.admitted);
        }
        if task.status == TaskStatus::Dead {
            match own_retention_end(entry) {
                Some(end) => _ = self.dead_own.insert((end, entry.admitted)),
                None => _ = self.dead_inheriting.insert(entry.finished, entry.admitted),
            }
        }
    }

    /// Takes the task out from where [`Queue::place`] entered it. It must not have changed since.
    pub(crate) fn displace(&mut self, entry: &Entry) {
        let task = &entry.task;
        if let Some(at) = entry.due_at() {
            self.displace_due(entry, at);
            if let Some(expires_at) = task.expires_at {
                self.expiring.remove(&(expires_at, entry.admitted));
            }
            return;
        }
        if let Some(order) = self.finished_in(task.status) {
            order.remove(&entry.finished);
        }
        if task.status == TaskStatus::Dead {
            match own_retention_end(entry) {
                Some(end) => _ = self.dead_own.remove(&(end, entry.admitted)),
                None => _ = self.dead_inheriting.remove(&entry.finished),
            }
        }
    }

    fn place_due(&mut self, entry: &Entry, at: Timestamp) {
        let (key, priority) = ((at, entry.admitted), entry.task.priority);
        let is_lease = entry.task.status == TaskStatus::InFlight;
        let is_ready = at <= self.promoted;
        self.count(is_lease, is_ready, |count| *count += 1);
        if is_ready {
            self.ready.entry(Reverse(priority)).or_default().insert(key);
        } else {
            self.timers.insert(key, Timer { priority, is_lease });
        }
        // Who waits for the queue wakes for the first timer and then learns of the next.
        let is_first = || self.timers.first_key_value().is_some_and(|(first, _)| *first == key);
        if is_ready || is_first() {
            self.news = Some(self.news.map_or(at, |news| news.min(at)));
        }
    }

    fn displace_due(&mut self, entry: &Entry, at: Timestamp) {
        let (key, priority) = ((at, entry.admitted), Reverse(entry.task.priority));
        let is_lease = entry.task.status == TaskStatus::InFlight;
        let is_ready = at <= self.promoted;
        self.count(is_lease, is_ready, |count| *count -= 1);
        if !is_ready {
            self.timers.remove(&key);
        } else if let Some(bucket) = self.ready.get_mut(&priority) {
            bucket.remove(&key);
            if bucket.is_empty() {
                self.ready.remove(&priority);
            }
        }
    }

    fn count(&mut self, is_lease: bool, is_ready: bool, change: impl Fn(&mut u64)) {
        match (is_lease, is_ready) {
            (false, false) => change(&mut self.delayed),
            (false, true) => change(&mut self.pending_ready),
            (true, false) => change(&mut self.in_flight),
            (true, true) => {
                change(&mut self.in_flight);
                change(&mut self.lapsed);
            }
        }
    }

    fn finished_in(&mut self, status: TaskStatus) -> Option<&mut ByFinish> {
        match status {
            TaskStatus::Pending | TaskStatus::InFlight => None,
            TaskStatus::Succeeded => Some(&mut self.succeeded),
            TaskStatus::Dead => Some(&mut self.dead),
            TaskStatus::Cancelled => Some(&mut self.cancelled),
        }
    }

    /// The task to claim next, by its admission.
    pub(crate) fn next_ready(&self) -> Option<u64> {
        let (_, bucket) = self.ready.first_key_value()?;
        bucket.first().map(|(_, admitted)| *admitted)
    }

    /// When something is due: now if it is already.
    pub(crate) fn next_due_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.ready.is_empty() { self.next_timer() } else { Some(now) }
    }

    /// When the next timer ends.
    pub(crate) fn next_timer(&self) -> Option<Timestamp> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    /// Whether [`Queue::take_news`] may have some.
    pub(crate) fn has_news(&self) -> bool {
        self.news.is_some()
    }

    /// What those who wait for the queue should hear since the last look: when a task may be due.
    pub(crate) fn take_news(&mut self, now: Timestamp) -> Option<Timestamp> {
        let at = self.news.take()?;
        // What was due may have been claimed in the same step.
        if at > now { Some(at) } else { self.next_due_at(now) }
    }

    /// The counts. `pending` tells whether a task is.
    pub(crate) fn stats(&self, now: Timestamp, pending: impl Fn(u64) -> bool) -> QueueStats {
        // The first pending task of each priority is its oldest; lapsed ones may stand before it.
        let oldest = self.ready.values().filter_map(|bucket| {
            bucket.iter().find(|(_, admitted)| pending(*admitted)).map(|(at, _)| *at)
        });
        QueueStats {
            ready: self.pending_ready,
            delayed: self.delayed,
            in_flight: self.in_flight,
            lapsed: self.lapsed,
            dead: self.dead.len() as u64,
            succeeded: self.succeeded.len() as u64,
            cancelled: self.cancelled.len() as u64,
            oldest_pending_age: oldest.min().map(|at| now.since(at)),
        }
    }
}

fn own_retention_end(entry: &Entry) -> Option<Timestamp> {
    let retention = entry.task.overrides.retention_dead?;
    Some(entry.task.finished_at?.after(retention))
}
