//! When the next task of a queue is due: what claims answer and what those who wait are told. It
//! claims nothing.

use crate::{clock::Clock, errors::Sql, lanes, statements::Statements};
use rdq_spi::{HintHub, Timestamp};
use rusqlite::OptionalExtension as _;
use std::time::Duration;

/// When something of a queue is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NextDue {
    /// Something stands in a lane of due tasks.
    pub(crate) ready: bool,
    /// The first delayed task.
    pub(crate) delayed: Option<Timestamp>,
    /// The first end of a lease.
    pub(crate) lease_end: Option<Timestamp>,
}

impl NextDue {
    /// Reads it.
    pub(crate) fn read(sql: &mut Statements<'_>, queue: i64) -> Sql<Self> {
        sql.tasks.next_due.query_row([queue], |row| {
            Ok(Self {
                ready: row.get::<_, Option<i64>>(0)?.is_some_and(|lane| lane <= lanes::READY_MAX),
                delayed: crate::rows::timestamp(row, 1)?,
                lease_end: crate::rows::timestamp(row, 2)?,
            })
        })
    }

    /// How long until then; `None` if nothing waits.
    pub(crate) fn due_in(self, now: Timestamp) -> Option<Duration> {
        if self.ready {
            return Some(Duration::ZERO);
        }
        self.delayed.into_iter().chain(self.lease_end).min().map(|at| at.since(now))
    }
}

/// Hints the queues that somebody waits for, by what stands in the file. Answers how long until
/// something more of them is due.
pub(crate) fn hint_watched(sql: &mut Statements<'_>, hub: &HintHub) -> Sql<Option<Duration>> {
    let clock = sql
        .state
        .state
        .query_row([], |row| Ok(Clock { now: row.get(1)?, host_now: row.get(2)? }.advanced()))?;
    let mut soonest = None;
    for name in hub.watched() {
        let queue = sql.queues.queue_by_name.query_row([name.as_str()], |row| row.get(0));
        let Some(queue) = queue.optional()? else { continue };
        let next_due = NextDue::read(sql, queue)?;
        if let Some(due_in) = next_due.due_in(clock.timestamp()) {
            hub.hint(&name, due_in);
        }
        let timers = next_due.delayed.into_iter().chain(next_due.lease_end);
        let later = timers.map(|at| at.since(clock.timestamp())).filter(|due_in| !due_in.is_zero());
        soonest = soonest.into_iter().chain(later).min();
    }
    Ok(soonest)
}
