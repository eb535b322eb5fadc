//! Rows of `tasks` and what they mean, and domain values as they are stored. Nothing here runs a
//! statement or decides a transition.

use crate::{
    errors::{Sql, corrupt},
    history,
};
use bytes::Bytes;
use rdq_spi::{
    Attempt, AttemptOutcome, Overrides, QueueName, Task, TaskId, TaskStatus, Timestamp, WorkerId,
    duration_of_number,
};
use sqlx::{Postgres, Row as _, postgres::PgRow};
use std::time::Duration;

/// The task in a row that has the columns of `tasks`, and `history`.
pub(crate) fn task(row: &PgRow) -> Sql<Task> {
    let status = status(row.try_get("status")?)?;
    let mut task = Task {
        id: TaskId::stored(row.try_get::<&str, _>("id")?),
        queue: QueueName::stored(row.try_get::<&str, _>("queue")?),
        handler_ref: QueueName::stored(row.try_get::<&str, _>("handler_ref")?),
        priority: row.try_get("priority")?,
        envelope: bytes(row, "envelope")?,
        overrides: Overrides {
            max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(count).transpose()?,
            lease: duration(row, "lease")?,
            initial_backoff: duration(row, "initial_backoff")?,
            retention_dead: duration(row, "retention_dead")?,
        },
        status,
        attempt_count: count(row.try_get("attempt_count")?)?,
        redrive_count: count(row.try_get("redrive_count")?)?,
        lease_expired_count: count(row.try_get("lease_expired_count")?)?,
        progress: bytes(row, "progress")?,
        result: bytes(row, "result")?,
        claimed_at: timestamp(row, "claimed_at")?,
        claimed_by: row.try_get::<Option<&str>, _>("claimed_by")?.map(WorkerId::stored),
        next_attempt_at: timestamp(row, "next_attempt_at")?
            .filter(|_| status == TaskStatus::Pending),
        lease_expires_at: timestamp(row, "lease_expires_at")?,
        expires_at: timestamp(row, "expires_at")?,
        created_at: Timestamp::from_millis(row.try_get("created_at")?),
        finished_at: timestamp(row, "finished_at")?,
        attempts: history::decode(row.try_get("history")?)?,
        last_attempt_no: count(row.try_get("last_attempt_no")?)?,
    };
    // A plain success names its claim for the sake of its record alone.
    if status != TaskStatus::InFlight {
        (task.claimed_at, task.claimed_by) = (None, None);
    }
    Ok(task)
}

/// The columns of a row, one after the other: as a claim answers many rows of many columns, they are
/// not looked for by name.
pub(crate) struct Columns<'r> {
    row: &'r PgRow,
    next: usize,
}

impl<'r> Columns<'r> {
    /// From the first.
    pub(crate) fn of(row: &'r PgRow) -> Self {
        Self { row, next: 0 }
    }

    /// The next.
    pub(crate) fn take<T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>>(&mut self) -> Sql<T> {
        let index = self.next;
        self.next += 1;
        self.row.try_get(index)
    }

    /// The next, which is text.
    pub(crate) fn text(&mut self) -> Sql<&'r str> {
        self.take()
    }

    /// The next, which is bytes or none.
    pub(crate) fn bytes(&mut self) -> Sql<Bytes> {
        Ok(self.take::<Option<&[u8]>>()?.map(Bytes::copy_from_slice).unwrap_or_default())
    }

    /// The next, which is an instant.
    pub(crate) fn timestamp(&mut self) -> Sql<Option<Timestamp>> {
        Ok(self.take::<Option<i64>>()?.map(Timestamp::from_millis))
    }

    /// The next, which is a duration.
    pub(crate) fn duration(&mut self) -> Sql<Option<Duration>> {
        Ok(self.take::<Option<i64>>()?.map(duration_of_number))
    }

    /// The next, which is a count.
    pub(crate) fn count(&mut self) -> Sql<u32> {
        count(self.take()?)
    }
}

/// The record of a success with nothing to tell, which is not among the others.
pub(crate) fn plain_success(row: &PgRow) -> Sql<Option<Attempt>> {
    if !row.try_get::<bool, _>("plain_success")? {
        return Ok(None);
    }
    Ok(Some(Attempt {
        attempt_no: count(row.try_get("last_attempt_no")?)?,
        started_at: timestamp(row, "claimed_at")?,
        finished_at: timestamp(row, "finished_at")?,
        outcome: Some(AttemptOutcome::Success),
        worker_id: row.try_get::<Option<&str>, _>("claimed_by")?.map(WorkerId::stored),
        error: None,
        extra: Bytes::new(),
        folded_count: 0,
    }))
}

/// A stored status.
pub(crate) fn status(number: i16) -> Sql<TaskStatus> {
    TaskStatus::of_number(number).ok_or_else(|| corrupt("status"))
}

/// A status as it is stored.
pub(crate) fn status_number(status: TaskStatus) -> i16 {
    status.number().into()
}

/// A stored instant.
pub(crate) fn timestamp(row: &PgRow, column: &str) -> Sql<Option<Timestamp>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(Timestamp::from_millis))
}

/// A count of 32 bits.
pub(crate) fn count(number: i64) -> Sql<u32> {
    u32::try_from(number).map_err(|_| corrupt("count"))
}

fn bytes(row: &PgRow, column: &str) -> Sql<Bytes> {
    Ok(row.try_get::<Option<&[u8]>, _>(column)?.map(Bytes::copy_from_slice).unwrap_or_default())
}

fn duration(row: &PgRow, column: &str) -> Sql<Option<Duration>> {
    Ok(row.try_get::<Option<i64>, _>(column)?.map(duration_of_number))
}

/// A duration in milliseconds, rounded up, and cut to what can be added to any instant.
pub(crate) fn millis(duration: Duration) -> i64 {
    let max = Timestamp::MAX.millis() - Timestamp::MIN.millis();
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(max).min(max)
}

/// What is left of something, in the milliseconds that a function answered.
pub(crate) fn remaining(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Bytes as they are stored: none if empty.
pub(crate) fn filled(bytes: &Bytes) -> Option<&[u8]> {
    (!bytes.is_empty()).then_some(&bytes[..])
}

/// A batch's values of one column; none at all if every one of them is none.
pub(crate) fn any<T>(values: Vec<Option<T>>) -> Option<Vec<Option<T>>> {
    values.iter().any(Option::is_some).then_some(values)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn statuses_come_back_as_they_were() {
        for number in 0..5 {
            assert_eq!(status_number(status(number).unwrap()), number);
        }
        assert!(status(5).is_err() && status(-1).is_err());
    }

    #[test]
    fn milliseconds_are_rounded_up_and_can_be_added_to_any_instant() {
        assert_eq!(millis(Duration::from_nanos(1)), 1);
        let longest = millis(Duration::MAX);
        assert!(Timestamp::MAX.millis().checked_add(longest).is_some());
        assert_eq!(Timestamp::MIN.millis() + longest, Timestamp::MAX.millis());
        assert_eq!(remaining(-1), Duration::ZERO);
    }
}
