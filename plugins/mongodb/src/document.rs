//! A task as a document, and back. The README of this crate says what its fields mean.

use crate::{
    errors::{Step, corrupt},
    history::AttemptDocument,
};
use bytes::Bytes;
use mongodb::bson::{Binary, DateTime, doc, spec::BinarySubtype};
use rdq_spi::{Overrides, QueueName, Task, TaskId, TaskStatus, Timestamp, WorkerId};
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub(crate) const PENDING: i32 = TaskStatus::Pending as i32;
pub(crate) const IN_FLIGHT: i32 = TaskStatus::InFlight as i32;
pub(crate) const SUCCEEDED: i32 = TaskStatus::Succeeded as i32;
pub(crate) const DEAD: i32 = TaskStatus::Dead as i32;
pub(crate) const CANCELLED: i32 = TaskStatus::Cancelled as i32;

/// A task, or what was read of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct TaskDocument {
    #[serde(rename = "_id")]
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) queue: String,
    #[serde(default)]
    pub(crate) handler_ref: String,
    /// The priority, negated: the lowest rank goes first.
    #[serde(default)]
    pub(crate) rank: i64,
    /// When it is due, or its lease ends; unset once it is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<DateTime>,
    /// The number of its admission.
    #[serde(default)]
    pub(crate) seq: i64,
    /// Counts its transitions: what each is guarded by.
    #[serde(default)]
    pub(crate) revision: i64,
    /// Of the last claim; 0 before the first.
    #[serde(default)]
    pub(crate) generation: i64,
    /// Which call made the last claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<i64>,
    #[serde(default)]
    pub(crate) status: i32,
    /// Pending or in flight.
    #[serde(default)]
    pub(crate) live: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) finished_at: Option<DateTime>,
    /// The number of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_at: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_by: Option<String>,
    #[serde(default)]
    pub(crate) attempt_count: i64,
    #[serde(default)]
    pub(crate) redrive_count: i64,
    #[serde(default)]
    pub(crate) lease_expired_count: i64,
    #[serde(default)]
    pub(crate) last_attempt_no: i64,
    #[serde(default)]
    pub(crate) overrides: OverridesDocument,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Binary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Binary>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) envelope: Option<Binary>,
    /// How many records its history has, and what they weigh.
    #[serde(default)]
    pub(crate) records: i64,
    #[serde(default)]
    pub(crate) history_bytes: i64,
    #[serde(default)]
    pub(crate) attempts: Vec<AttemptDocument>,
    /// How the last claim ended, while that is remembered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ending: Option<Ending>,
    /// The server's clock, where it was read with the task.
    #[serde(default, skip_serializing)]
    pub(crate) now: Option<DateTime>,
    /// What the answer with it weighs, where that was asked for.
    #[serde(default, skip_serializing)]
    pub(crate) weight: i64,
}

/// How a claim ended: by which call, numbered as the contract does, or without its holder: 6
/// cancelled, 7 expired.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) call: i32,
    pub(crate) status: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next_attempt_at: Option<DateTime>,
}

impl Ending {
    pub(crate) const CANCELLED: i32 = 6;
    pub(crate) const EXPIRED: i32 = 7;
}

/// Durations are seconds and nanoseconds.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct OverridesDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<(i64, i32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_backoff: Option<(i64, i32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retention_dead: Option<(i64, i32)>,
}

impl OverridesDocument {
    pub(crate) fn of(overrides: &Overrides) -> Self {
        let pair = |duration: Duration| {
            (duration.as_secs().cast_signed(), duration.subsec_nanos().cast_signed())
        };
        Self {
            max_attempts: overrides.max_attempts.map(i64::from),
            lease: overrides.lease.map(pair),
            initial_backoff: overrides.initial_backoff.map(pair),
            retention_dead: overrides.retention_dead.map(pair),
        }
    }

    pub(crate) fn read(self) -> Overrides {
        let duration = |(seconds, nanos): (i64, i32)| {
            Duration::new(seconds.cast_unsigned(), nanos.cast_unsigned().min(999_999_999))
        };
        Overrides {
            max_attempts: self.max_attempts.map(count),
            lease: self.lease.map(duration),
            initial_backoff: self.initial_backoff.map(duration),
            retention_dead: self.retention_dead.map(duration),
        }
    }
}

impl TaskDocument {
    pub(crate) fn task_id(&self) -> TaskId {
        TaskId::stored(self.id.as_str())
    }

    /// Whether the lease of a task in flight has run out.
    pub(crate) fn has_lapsed(&self, now: Timestamp) -> bool {
        self.at.is_some_and(|end| instant(end) <= now)
    }

    /// The task, with what was read of its history.
    pub(crate) fn into_task(self) -> Step<Task> {
        let status = status_of(self.status)?;
        let at = self.at.map(instant);
        let is_held = status == TaskStatus::InFlight;
        Ok(Task {
            id: self.task_id(),
            queue: QueueName::stored(self.queue),
            handler_ref: QueueName::stored(self.handler_ref),
            priority: i32::try_from(-self.rank).map_err(|_| corrupt("rank"))?,
            envelope: bytes(self.envelope),
            overrides: self.overrides.read(),
            status,
            attempt_count: count(self.attempt_count),
            redrive_count: count(self.redrive_count),
            lease_expired_count: count(self.lease_expired_count),
            progress: bytes(self.progress),
            result: bytes(self.result),
            claimed_at: self.claimed_at.filter(|_| is_held).map(instant),
            claimed_by: self.claimed_by.filter(|_| is_held).map(WorkerId::stored),
            next_attempt_at: at.filter(|_| status == TaskStatus::Pending),
            lease_expires_at: at.filter(|_| is_held),
            expires_at: self.expires_at.map(instant),
            created_at: self.created_at.map(instant).ok_or_else(|| corrupt("created_at"))?,
            finished_at: self.finished_at.map(instant),
            attempts: self
                .attempts
                .into_iter()
                .map(AttemptDocument::into_attempt)
                .collect::<Step<_>>()?,
            last_attempt_no: count(self.last_attempt_no),
        })
    }
}

/// The stage that leaves out of a task what no judgement needs.
pub(crate) fn heads() -> mongodb::bson::Document {
    doc! { "$project": {
        "attempts": 0, "envelope": 0, "progress": 0, "result": 0,
    } }
}

/// The stage that adds the server's clock.
pub(crate) fn with_now() -> mongodb::bson::Document {
    doc! { "$set": { "now": "$$NOW" } }
}

pub(crate) fn date(at: Timestamp) -> DateTime {
    DateTime::from_millis(at.millis())
}

pub(crate) fn instant(date: DateTime) -> Timestamp {
    Timestamp::from_millis(date.timestamp_millis())
}

pub(crate) fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

pub(crate) fn bytes(binary: Option<Binary>) -> Bytes {
    binary.map(|binary| Bytes::from(binary.bytes)).unwrap_or_default()
}

/// A number that counts in 32 bits.
pub(crate) fn count(number: i64) -> u32 {
    u32::try_from(number.max(0)).unwrap_or(u32::MAX)
}

pub(crate) fn one_more(number: i64) -> i64 {
    (number + 1).min(u32::MAX.into())
}

/// The same, by the server.
pub(crate) fn count_of_one_more(field: &str) -> mongodb::bson::Document {
    doc! { "$min": [{ "$add": [field, 1_i64] }, i64::from(u32::MAX)] }
}

pub(crate) fn status_number(status: TaskStatus) -> i32 {
    status.number().into()
}

pub(crate) fn status_of(number: i32) -> Step<TaskStatus> {
    TaskStatus::of_number(number).ok_or_else(|| corrupt("status"))
}
