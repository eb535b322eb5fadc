//! Rows of `tasks` and what they mean. Nothing here runs a statement or decides a transition.
//!
//! Statements select `*`: the columns come in the table's order, and a later schema only appends.

use crate::{
    errors::{Sql, corrupt},
    history::Kept,
    lanes, records,
};
use bytes::Bytes;
use rdq_spi::{
    Attempt, AttemptOutcome, Call, Overrides, QueueName, StaleDetail, Task, TaskId, TaskStatus,
    Timestamp, WorkerId, duration_of_number,
};
use rusqlite::Row;
use std::time::Duration;

/// The values of the column `history` beside 0.
const IN_TABLE: i64 = 1;
const PLAIN_SUCCESS: i64 = 2;

/// What transitions read and change of a task.
#[derive(Debug)]
pub(crate) struct TaskRow {
    pub(crate) task: i64,
    pub(crate) id: TaskId,
    pub(crate) queue: i64,
    pub(crate) lane: i64,
    pub(crate) at: i64,
    pub(crate) status: TaskStatus,
    pub(crate) generation: i64,
    pub(crate) ending: Ending,
    pub(crate) attempt_count: u32,
    pub(crate) redrive_count: u32,
    pub(crate) lease_expired_count: u32,
    pub(crate) last_attempt_no: u32,
    /// Kept after the task ended: a repeated call is answered by it.
    pub(crate) next_attempt_at: Option<Timestamp>,
    pub(crate) lease_expires_at: Option<Timestamp>,
    pub(crate) claimed_at: Option<Timestamp>,
    pub(crate) claimed_by: Option<WorkerId>,
    /// Who took the last claim, whatever became of it.
    pub(crate) last_worker: Option<WorkerId>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) purge_at: Option<Timestamp>,
    pub(crate) final_error_type: Option<String>,
    pub(crate) history: Kept,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) created_at: Timestamp,
    pub(crate) priority: i32,
    pub(crate) overrides: Overrides,
}

/// How the last claim ended: what its token is answered by from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It did not, or nobody needs to know.
    None,
    /// By this call, which led to this status.
    Resolved(Call, TaskStatus),
    /// By somebody else.
    Stale(StaleDetail),
}

impl TaskRow {
    /// Reads the row.
    pub(crate) fn read(row: &Row<'_>) -> Sql<Self> {
        let mut read = Self {
            task: row.get(0)?,
            id: TaskId::stored(row.get_ref(1)?.as_str()?),
            queue: row.get(2)?,
            lane: row.get(3)?,
            at: row.get(4)?,
            status: status(row, 5)?,
            generation: row.get(6)?,
            ending: Ending::decode(row.get(7)?)?,
            attempt_count: row.get(8)?,
            redrive_count: row.get(9)?,
            lease_expired_count: row.get(10)?,
            last_attempt_no: row.get(11)?,
            next_attempt_at: timestamp(row, 12)?,
            lease_expires_at: timestamp(row, 13)?,
            claimed_at: timestamp(row, 14)?,
            claimed_by: None,
            last_worker: row.get_ref(15)?.as_str_or_null()?.map(WorkerId::stored),
            finished_at: timestamp(row, 16)?,
            purge_at: timestamp(row, 17)?,
            final_error_type: row.get(18)?,
            history: Kept { in_table: row.get::<_, i64>(19)? == IN_TABLE, only: row.get(20)? },
            expires_at: timestamp(row, 21)?,
            created_at: Timestamp::from_millis(row.get(22)?),
            priority: row.get(23)?,
            overrides: Overrides {
                max_attempts: row.get(25)?,
                lease: duration(row, 26)?,
                initial_backoff: duration(row, 27)?,
                retention_dead: duration(row, 28)?,
            },
        };
        if row.get::<_, i64>(19)? == PLAIN_SUCCESS {
            read.history.only = Some(records::encode(&read.plain_success()));
            read.drop_claim();
        } else if read.status == TaskStatus::InFlight {
            read.claimed_by.clone_from(&read.last_worker);
        }
        Ok(read)
    }

    /// The attempt that `complete_task` left to be told from the row.
    fn plain_success(&self) -> Attempt {
        Attempt {
            attempt_no: self.last_attempt_no,
            started_at: self.claimed_at,
            finished_at: self.finished_at,
            outcome: Some(AttemptOutcome::Success),
            worker_id: self.last_worker.clone(),
            error: None,
            extra: Bytes::new(),
            folded_count: 0,
        }
    }

    /// Whether the lease has run out.
    pub(crate) fn has_lapsed(&self, now: Timestamp) -> bool {
        self.lease_expires_at.is_some_and(|end| end <= now)
    }

    /// Puts the task where it waits to be claimed, from this instant on.
    pub(crate) fn wait_until(&mut self, due: Timestamp, now: Timestamp) {
        self.status = TaskStatus::Pending;
        self.next_attempt_at = Some(due);
        self.lane = if due <= now { lanes::ready(self.priority) } else { lanes::DELAYED };
        self.at = due.millis();
        self.drop_claim();
    }

    /// Puts the task where it waits for the end of its lease.
    pub(crate) fn lease_until(&mut self, end: Timestamp) {
        self.status = TaskStatus::InFlight;
        self.lease_expires_at = Some(end);
        self.lane = lanes::LEASED;
        self.at = end.millis();
    }

    /// Puts the task among the finished ones.
    pub(crate) fn finish(&mut self, status: TaskStatus, finish_seq: i64, now: Timestamp) {
        self.status = status;
        self.finished_at = Some(now);
        self.lane = lanes::finished(status);
        self.at = finish_seq;
        self.drop_claim();
        if status == TaskStatus::Dead {
            self.purge_at = self.overrides.retention_dead.map(|kept| now.after(kept));
        }
    }

    fn drop_claim(&mut self) {
        self.lease_expires_at = None;
        self.claimed_at = None;
        self.claimed_by = None;
    }
}

/// A task's row with what only answers need.
#[derive(Debug)]
pub(crate) struct FullRow {
    pub(crate) row: TaskRow,
    pub(crate) handler_ref: QueueName,
    pub(crate) progress: Bytes,
    pub(crate) result: Bytes,
    /// `None` if it is in `bodies`.
    pub(crate) envelope: Option<Bytes>,
}

impl FullRow {
    /// Reads the row.
    pub(crate) fn read(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            row: TaskRow::read(row)?,
            handler_ref: QueueName::stored(row.get_ref(24)?.as_str()?),
            progress: bytes(row, 29)?.unwrap_or_default(),
            result: bytes(row, 30)?.unwrap_or_default(),
            envelope: bytes(row, 31)?,
        })
    }

    /// The task as it is answered.
    pub(crate) fn into_task(
        self,
        queue: QueueName,
        envelope: Bytes,
        attempts: Vec<Attempt>,
    ) -> Task {
        let Self { row, handler_ref, progress, result, .. } = self;
        Task {
            id: row.id,
            queue,
            handler_ref,
            priority: row.priority,
            envelope,
            overrides: row.overrides,
            status: row.status,
            attempt_count: row.attempt_count,
            redrive_count: row.redrive_count,
            lease_expired_count: row.lease_expired_count,
            progress,
            result,
            claimed_at: row.claimed_at,
            claimed_by: row.claimed_by,
            next_attempt_at: row.next_attempt_at.filter(|_| row.status == TaskStatus::Pending),
            lease_expires_at: row.lease_expires_at,
            expires_at: row.expires_at,
            created_at: row.created_at,
            finished_at: row.finished_at,
            attempts,
            last_attempt_no: row.last_attempt_no,
        }
    }
}

impl Ending {
    /// As it is stored.
    pub(crate) fn encode(self) -> i64 {
        match self {
            Self::None => 0,
            Self::Stale(StaleDetail::Cancelled) => 1,
            Self::Stale(StaleDetail::Expired) => 2,
            Self::Resolved(call, status) => i64::from(call.number() * 8 + status.number()),
        }
    }

    fn decode(number: i64) -> Sql<Self> {
        match number {
            0 => return Ok(Self::None),
            1 => return Ok(Self::Stale(StaleDetail::Cancelled)),
            2 => return Ok(Self::Stale(StaleDetail::Expired)),
            _ => {}
        }
        let call = Call::of_number(number / 8).ok_or_else(|| corrupt("ending"))?;
        let status = TaskStatus::of_number(number % 8).ok_or_else(|| corrupt("ending"))?;
        Ok(Self::Resolved(call, status))
    }
}

/// What a record of the history weighs in an answer beside its text: numbers and instants.
const RECORD_BYTES: usize = 48;

/// What a task weighs in an answer.
pub(crate) fn answer_bytes(full: &FullRow, envelope: &Bytes, attempts: &[Attempt]) -> usize {
    let sent = envelope.len() + full.progress.len() + full.result.len();
    sent + attempts.iter().map(|attempt| attempt.len_bytes() + RECORD_BYTES).sum::<usize>()
}

/// An envelope larger than this is kept outside of the task's row, which each transition rewrites.
const INLINE_ENVELOPE_MAX: usize = 1 << 10;

/// Whether an envelope is kept in `bodies`.
pub(crate) fn is_large(envelope: &[u8]) -> bool {
    envelope.len() > INLINE_ENVELOPE_MAX
}

/// Reads a row of `bodies`.
pub(crate) fn body(row: &Row<'_>) -> Sql<Bytes> {
    Ok(bytes(row, 0)?.unwrap_or_default())
}

/// Reads a status.
pub(crate) fn status(row: &Row<'_>, index: usize) -> Sql<TaskStatus> {
    TaskStatus::of_number(row.get::<_, i64>(index)?).ok_or_else(|| corrupt("status"))
}

/// Reads an instant.
pub(crate) fn timestamp(row: &Row<'_>, index: usize) -> Sql<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(Timestamp::from_millis))
}

/// Reads bytes.
pub(crate) fn bytes(row: &Row<'_>, index: usize) -> Sql<Option<Bytes>> {
    Ok(row.get_ref(index)?.as_blob_or_null()?.map(Bytes::copy_from_slice))
}

fn duration(row: &Row<'_>, index: usize) -> Sql<Option<Duration>> {
    Ok(row.get::<_, Option<i64>>(index)?.map(duration_of_number))
}

/// Bytes as they are stored: none if empty.
pub(crate) fn filled(bytes: &Bytes) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(&bytes[..])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn endings_come_back_as_they_were() {
        let calls = [Call::Complete, Call::Reschedule, Call::DeadLetter, Call::Fail, Call::Release];
        let statuses = [TaskStatus::Pending, TaskStatus::Succeeded, TaskStatus::Dead];
        let resolved = calls.iter().flat_map(|call| statuses.map(|to| Ending::Resolved(*call, to)));
        let stale = [StaleDetail::Cancelled, StaleDetail::Expired].map(Ending::Stale);
        for ending in resolved.chain(stale).chain([Ending::None]) {
            assert_eq!(Ending::decode(ending.encode()).unwrap(), ending);
        }
        assert!(Ending::decode(7).is_err() && Ending::decode(-1).is_err());
        assert!(Ending::decode(15).is_err() && Ending::decode(800).is_err());
    }

    #[test]
    fn durations_keep_their_nanoseconds_where_they_fit() {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        for (given, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_nanos(1_500_000_001), Duration::from_nanos(1_500_000_001)),
            (Duration::new(315_576_000_000, 5), Duration::from_secs(315_576_000_000)),
            (Duration::MAX, Duration::from_secs(i64::MAX.unsigned_abs())),
        ] {
            let number = rdq_spi::duration_number(given);
            let read = db.query_row("SELECT ?1", [number], |row| duration(row, 0)).unwrap();
            assert_eq!(read, Some(expected));
        }
    }
}
