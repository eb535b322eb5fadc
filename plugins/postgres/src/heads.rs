//! Where claims of a busy queue go on. Behind it in the index stand the due tasks; in front of it rows
//! that were claimed a moment ago, which every claim would have to look at until they are vacuumed,
//! and which cannot be while anybody holds an old snapshot.
//!
//! What stands in front of a head is found late: never for longer than [`AGE_MAX`], and at once
//! where this handle put it there or where there is not enough behind. A queue has a head only while
//! it gives so many tasks that the rows in front of it matter.

use crate::clock::Moment;
use rdq_spi::QueueName;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long claims go on before one looks from the start again.
pub(crate) const AGE_MAX: Duration = Duration::from_millis(500);
/// How many tasks claims take from a start before they go on behind them.
const TAKEN_MIN: u64 = 500;
/// A claim from the start that takes so long had much in front of it to look at, as where a foreign
/// transaction keeps the rows of days: of such claims few are enough.
const SLOW_MIN: Duration = Duration::from_millis(5);
const TAKEN_SLOWLY_MIN: u64 = 8;
/// Queues remembered: beyond it all begin anew.
const QUEUES_MAX: usize = 10_000;

/// A place in the index of due tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The complement of the priority: lower goes first.
    pub(crate) rank: i32,
    /// When the task was due.
    pub(crate) at: i64,
    /// Its admission.
    pub(crate) seq: i64,
}

impl Place {
    /// In front of everything.
    pub(crate) const START: Self = Self { rank: i32::MIN, at: i64::MIN, seq: i64::MIN };
}

/// The heads of this handle's queues.
#[derive(Debug, Default)]
pub(crate) struct Heads(Mutex<HashMap<QueueName, Head>>);

#[derive(Debug)]
struct Head {
    /// Which start this is: what was claimed since another one tells nothing.
    start: u64,
    started: Moment,
    taken: u64,
    furthest: Place,
}

/// A look at a queue, to be told what it found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Behind which place to look.
    pub(crate) behind: Place,
    start: u64,
    begun: Moment,
}

impl Heads {
    /// A claim is about to look at the queue.
    pub(crate) fn look(&self, queue: &QueueName) -> Look {
        let mut heads = self.lock();
        if heads.len() > QUEUES_MAX {
            heads.clear();
        }
        let (start, begun) = (heads.get(queue).map_or(0, |head| head.start), Moment::now());
        match heads.get(queue) {
            Some(head) if head.started.age() < AGE_MAX => {
                let is_worth_it = head.taken >= TAKEN_MIN;
                Look {
                    behind: if is_worth_it { head.furthest } else { Place::START },
                    start,
                    begun,
                }
            }
            _ => {
                let (start, furthest) = (start.wrapping_add(1), Place::START);
                heads.insert(queue.clone(), Head { start, started: begun, taken: 0, furthest });
                Look { behind: Place::START, start, begun }
            }
        }
    }

    /// A claim, which has ended now, took so many tasks, of which the furthest stood there.
    pub(crate) fn took(&self, queue: &QueueName, look: Look, furthest: Place, count: u64) {
        self.took_after(queue, look, furthest, count, look.begun.age());
    }

    fn took_after(
        &self,
        queue: &QueueName,
        look: Look,
        furthest: Place,
        count: u64,
        lasting: Duration,
    ) {
        if let Some(head) = self.lock().get_mut(queue).filter(|head| head.start == look.start) {
            let is_slow = look.behind == Place::START && lasting >= SLOW_MIN;
            let weight = if is_slow { TAKEN_MIN / TAKEN_SLOWLY_MIN + 1 } else { 1 };
            head.taken += count * weight;
            head.furthest = head.furthest.max(furthest);
        }
    }

    /// Something may stand in front of the queue's head now.
    pub(crate) fn disturb(&self, queue: &QueueName) {
        if let Some(head) = self.lock().get_mut(queue) {
            head.start = head.start.wrapping_add(1);
            (head.started, head.taken, head.furthest) = (Moment::now(), 0, Place::START);
        }
    }

    /// A task of this priority was admitted that was due then (now, if `None`).
    pub(crate) fn admitted(&self, queue: &QueueName, priority: i32, due_at: Option<i64>) {
        let stands_in_front = self.lock().get(queue).is_some_and(|head| {
            let Place { rank, at, .. } = head.furthest;
            (!priority, due_at.unwrap_or(i64::MAX)) <= (rank, at)
        });
        if stands_in_front {
            self.disturb(queue);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<QueueName, Head>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn place(rank: i32, at: i64) -> Place {
        Place { rank, at, seq: 1 }
    }

    /// A queue that has given enough for a head at this place.
    fn busy(heads: &Heads, queue: &QueueName, at: Place) {
        let look = heads.look(queue);
        heads.took_after(queue, look, at, TAKEN_MIN, Duration::ZERO);
    }

    #[test]
    fn a_queue_has_a_head_once_it_gave_enough_and_until_something_may_stand_in_front() {
        let (heads, queue) = (Heads::default(), QueueName::new("q").unwrap());
        let look = heads.look(&queue);
        heads.took_after(&queue, look, place(5, 70), 1, Duration::ZERO);
        assert_eq!(heads.look(&queue).behind, Place::START, "one is not worth it");
        busy(&heads, &queue, place(5, 60));
        assert_eq!(heads.look(&queue).behind, place(5, 70), "the furthest");
        heads.admitted(&queue, !5, None);
        heads.admitted(&queue, !5, Some(71));
        heads.admitted(&queue, !6, Some(0));
        assert_eq!(heads.look(&queue).behind, place(5, 70), "those stand behind");
        for (priority, due_at) in [(!5, Some(70)), (!4, None)] {
            heads.admitted(&queue, priority, due_at);
            assert_eq!(heads.look(&queue).behind, Place::START);
            busy(&heads, &queue, place(5, 70));
        }
    }

    #[test]
    fn a_claim_that_was_under_way_when_something_came_tells_nothing() {
        let (heads, queue) = (Heads::default(), QueueName::new("q").unwrap());
        let look = heads.look(&queue);
        heads.disturb(&queue);
        heads.took_after(&queue, look, place(5, 70), TAKEN_MIN, Duration::ZERO);
        assert_eq!(heads.look(&queue).behind, Place::START);
    }

    #[test]
    fn few_claims_that_took_long_are_enough_for_a_head() {
        let (heads, queue) = (Heads::default(), QueueName::new("q").unwrap());
        let look = heads.look(&queue);
        heads.took_after(&queue, look, place(5, 70), TAKEN_SLOWLY_MIN - 1, SLOW_MIN);
        assert_eq!(heads.look(&queue).behind, Place::START, "one less is not enough");
        heads.took_after(&queue, look, place(5, 71), 1, SLOW_MIN);
        assert_eq!(heads.look(&queue).behind, place(5, 71));
    }
}
