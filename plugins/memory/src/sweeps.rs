//! Maintenance of a queue: what has expired dies, and what was kept long enough goes.

use crate::{entry::Past, history::expired, queue::Queue, state::State};
use rdq_spi::{Age, AttemptOutcome, StaleDetail, SweepParams, Swept, TaskStatus, Timestamp};
use std::collections::BTreeMap;

/// What a sweep does next, and to which task.
enum Due {
    Expire(u64),
    Remove(u64),
}

impl State {
    pub(crate) fn sweep(&mut self, params: &SweepParams, now: Timestamp) -> Swept {
        let mut swept = Swept::default();
        for _ in 0..params.limit {
            match self.next_to_sweep(params, now) {
                Some(Due::Expire(admitted)) => {
                    self.expire(admitted, now);
                    swept.expired += 1;
                }
                Some(Due::Remove(admitted)) => {
                    self.remove(admitted);
                    swept.removed += 1;
                }
                None => return swept,
            }
        }
        swept.more = self.next_to_sweep(params, now).is_some();
        swept
    }

    /// Looks at the first entry of each order alone, so that a step costs what it does.
    fn next_to_sweep(&self, params: &SweepParams, now: Timestamp) -> Option<Due> {
        let queue = self.queues.get(&params.queue)?;
        if params.expire
            && let Some((expires_at, admitted)) = queue.expiring.first()
            && *expires_at <= now
        {
            return Some(Due::Expire(*admitted));
        }
        let old = |order: &BTreeMap<u64, u64>, age: Option<Age>| {
            let (_, admitted) = order.first_key_value()?;
            let finished_at = self.entries.get(admitted)?.task.finished_at?;
            let is_old = match age? {
                Age::LongerThan(age) => finished_at.after(age) <= now,
                Age::Before(instant) => finished_at < instant,
            };
            is_old.then_some(*admitted)
        };
        let dead = || {
            let inherited = params.dead?.queue.map(Age::LongerThan);
            old(&queue.dead_inheriting, inherited).or_else(|| first_own(queue, now))
        };
        old(&queue.succeeded, params.succeeded_older_than)
            .or_else(|| old(&queue.cancelled, params.cancelled_older_than))
            .or_else(dead)
            .map(Due::Remove)
    }

    fn expire(&mut self, admitted: u64, now: Timestamp) {
        self.change(admitted, now, |entry, counters| {
            entry.append(AttemptOutcome::PermanentFailure, expired(), now);
            if entry.task.status == TaskStatus::InFlight {
                entry.past = Some(Past::Ended(StaleDetail::Expired));
            }
            entry.finish(TaskStatus::Dead, counters.next_finished(), now);
        });
    }
}

fn first_own(queue: &Queue, now: Timestamp) -> Option<u64> {
    let (end, admitted) = queue.dead_own.first()?;
    (*end <= now).then_some(*admitted)
}
