//! What the server answers of a task, typed. The encoded form stays with it, so nothing is lost that
//! a newer contract has.

use crate::Error;
use bytes::Bytes;
use prost::Message as _;
use rdq_proto::{envelope, raw, time, v1};
use std::{
    collections::HashMap,
    fmt,
    time::{Duration, SystemTime},
};

/// The highest field of `Task` that this version knows.
const TASK_FIELD_MAX: u32 = 29;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TaskStatus {
    /// Waits for its due time or for a worker.
    Pending,
    /// Claimed. The lease may have run out already; then it is due again.
    InFlight,
    /// Finished: a worker completed it.
    Succeeded,
    /// Finished until it is redriven: a dead letter.
    Dead,
    /// Finished: cancelled.
    Cancelled,
    /// One that this version does not know: not finished.
    Other(i32),
}

impl TaskStatus {
    /// Whether the task has ended.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled)
    }

    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Pending => v1::TaskStatus::Pending.into(),
            Self::InFlight => v1::TaskStatus::InFlight.into(),
            Self::Succeeded => v1::TaskStatus::Succeeded.into(),
            Self::Dead => v1::TaskStatus::Dead.into(),
            Self::Cancelled => v1::TaskStatus::Cancelled.into(),
            Self::Other(number) => number,
        }
    }

    pub(crate) fn of(number: i32) -> Self {
        v1::TaskStatus::try_from(number).map_or(Self::Other(number), Self::from)
    }
}

impl From<v1::TaskStatus> for TaskStatus {
    fn from(status: v1::TaskStatus) -> Self {
        match status {
            v1::TaskStatus::Pending => Self::Pending,
            v1::TaskStatus::InFlight => Self::InFlight,
            v1::TaskStatus::Succeeded => Self::Succeeded,
            v1::TaskStatus::Dead => Self::Dead,
            v1::TaskStatus::Cancelled => Self::Cancelled,
            v1::TaskStatus::Unspecified => Self::Other(0),
        }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AttemptOutcome {
    /// It completed.
    Success,
    /// It failed, and may run again.
    RetryableFailure,
    /// It failed, and must not run again.
    PermanentFailure,
    /// Its lease ran out, and somebody else claimed the task.
    LeaseExpired,
    /// The task was cancelled while it ran.
    Cancelled,
    /// One that this version does not know: a retryable failure.
    Other(i32),
}

impl AttemptOutcome {
    fn of(number: i32) -> Self {
        use v1::AttemptOutcome as O;
        match O::try_from(number) {
            Ok(O::Success) => Self::Success,
            Ok(O::RetryableFailure) => Self::RetryableFailure,
            Ok(O::PermanentFailure) => Self::PermanentFailure,
            Ok(O::LeaseExpired) => Self::LeaseExpired,
            Ok(O::Cancelled) => Self::Cancelled,
            Ok(O::Unspecified) | Err(_) => Self::Other(number),
        }
    }
}

/// A task as the server knows it.
#[derive(Clone, PartialEq)]
pub struct Task {
    fields: v1::Task,
    attempts: Vec<Attempt>,
    encoded: Bytes,
}

impl Task {
    pub(crate) fn decode(encoded: Bytes) -> Result<Self, Error> {
        let broken = |_| Error::broken("holds a task that is none");
        let mut fields =
            v1::Task::decode(encoded.clone()).map_err(|_| Error::broken("holds no task"))?;
        let attempts = std::mem::take(&mut fields.attempts);
        let attempts = attempts.iter().map(Attempt::decode).collect::<Result<_, _>>();
        let attempts = attempts.map_err(broken)?;
        Ok(Self { fields, attempts, encoded })
    }

    pub(crate) fn decode_all(encoded: Vec<Bytes>) -> Result<Vec<Self>, Error> {
        encoded.into_iter().map(Self::decode).collect()
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.fields.id
    }

    /// Its queue.
    pub fn queue(&self) -> &str {
        &self.fields.queue
    }

    /// Which handler runs it.
    pub fn handler_ref(&self) -> &str {
        &self.fields.handler_ref
    }

    /// The version of the handler that the producer meant.
    pub fn handler_version(&self) -> Option<&str> {
        self.fields.handler_version.as_deref()
    }

    /// The bytes for the handler.
    pub fn payload(&self) -> &Bytes {
        &self.fields.payload
    }

    /// What the payload is; empty if the producer did not say.
    pub fn content_type(&self) -> &str {
        &self.fields.payload_content_type
    }

    /// The producer's headers.
    pub fn headers(&self) -> &HashMap<String, String> {
        &self.fields.headers
    }

    /// One of the producer's headers.
    pub fn header(&self, key: &str) -> Option<&str> {
        self.fields.headers.get(key).map(String::as_str)
    }

    /// Higher goes first.
    pub fn priority(&self) -> i32 {
        self.fields.priority
    }

    /// Its own number of attempts, in place of the queue's.
    pub fn max_attempts(&self) -> Option<i32> {
        self.fields.max_attempts
    }

    /// Its own lease, in place of the queue's.
    pub fn lease(&self) -> Option<Duration> {
        span(self.fields.lease.as_ref())
    }

    /// Its own first backoff, in place of the queue's.
    pub fn initial_backoff(&self) -> Option<Duration> {
        span(self.fields.initial_backoff.as_ref())
    }

    /// Its own time as a dead letter, in place of the queue's.
    pub fn retention_dead(&self) -> Option<Duration> {
        span(self.fields.retention_dead.as_ref())
    }

    /// Where it stands.
    pub fn status(&self) -> TaskStatus {
        TaskStatus::of(self.fields.status)
    }

    /// Attempts spent since the last redrive.
    pub fn attempt_count(&self) -> i32 {
        self.fields.attempt_count
    }

    /// How often it was redriven.
    pub fn redrive_count(&self) -> i32 {
        self.fields.redrive_count
    }

    /// How many leases ran out and were reclaimed.
    pub fn lease_expired_count(&self) -> i32 {
        self.fields.lease_expired_count
    }

    /// The last checkpoint of a handler, kept through retries.
    pub fn progress(&self) -> &Bytes {
        &self.fields.progress
    }

    /// What the handler returned.
    pub fn result(&self) -> &Bytes {
        &self.fields.result
    }

    /// When it was claimed, while it is.
    pub fn claimed_at(&self) -> Option<SystemTime> {
        instant(self.fields.claimed_at.as_ref())
    }

    /// Who holds it; empty while nobody does.
    pub fn claimed_by(&self) -> &str {
        &self.fields.claimed_by
    }

    /// When it is due next, unless it is finished.
    pub fn next_attempt_at(&self) -> Option<SystemTime> {
        instant(self.fields.next_attempt_at.as_ref())
    }

    /// When the lease of its claim ends, while there is one.
    pub fn lease_expires_at(&self) -> Option<SystemTime> {
        instant(self.fields.lease_expires_at.as_ref())
    }

    /// When it is dead if it did not end before.
    pub fn expires_at(&self) -> Option<SystemTime> {
        instant(self.fields.expires_at.as_ref())
    }

    /// When it came into being.
    pub fn created_at(&self) -> Option<SystemTime> {
        instant(self.fields.created_at.as_ref())
    }

    /// When it finished.
    pub fn finished_at(&self) -> Option<SystemTime> {
        instant(self.fields.finished_at.as_ref())
    }

    /// Its history, oldest first. A claim carries the newest 100, without stacks and details; a
    /// list carries none unless it is asked for them.
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The encoded `rdq.v1.Task` as it came, with fields that this version does not know.
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// The encoded fields of the task that this version does not know.
    pub fn unknown_fields(&self) -> Bytes {
        raw::split(&self.encoded, |number| number > TASK_FIELD_MAX)
            .map_or_else(|_| Bytes::new(), |(unknown, _)| unknown)
    }
}

/// Without payload, result and header values, which belong in no log.
impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id())
            .field("queue", &self.queue())
            .field("handler_ref", &self.handler_ref())
            .field("status", &self.status())
            .field("attempt_count", &self.attempt_count())
            .field("attempts", &self.attempts)
            .finish_non_exhaustive()
    }
}

/// One attempt to run a task.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Attempt {
    /// Counts from 1 and grows for life, over redrives.
    pub attempt_no: i32,
    /// When the task was claimed.
    pub started_at: Option<SystemTime>,
    /// When the attempt ended.
    pub finished_at: Option<SystemTime>,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// Why it failed.
    pub error: Option<AttemptError>,
    /// Who ran it.
    pub worker_id: String,
    /// Above 0, this record stands for that many attempts.
    pub folded_count: i32,
    /// The encoded fields that this version does not know, those of the error in its place.
    pub unknown_fields: Bytes,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct AttemptError {
    /// A stable name, which a queue's classification matches.
    pub error_type: String,
    /// For people.
    pub message: String,
    /// For programs.
    pub detail: String,
    /// The stack.
    pub stack: String,
}

impl Attempt {
    fn decode(encoded: &Bytes) -> Result<Self, raw::Malformed> {
        let (known, error, unknown_fields) = envelope::split_attempt(encoded)?;
        Ok(Self {
            attempt_no: known.attempt_no,
            started_at: instant(known.started_at.as_ref()),
            finished_at: instant(known.finished_at.as_ref()),
            outcome: AttemptOutcome::of(known.outcome),
            error: error.map(|error| AttemptError {
                error_type: error.r#type,
                message: error.message,
                detail: error.detail,
                stack: error.stack,
            }),
            worker_id: known.worker_id,
            folded_count: known.folded_count,
            unknown_fields,
        })
    }
}

pub(crate) fn instant(at: Option<&prost_types::Timestamp>) -> Option<SystemTime> {
    at.and_then(|at| SystemTime::try_from(*at).ok())
}

pub(crate) fn span(duration: Option<&prost_types::Duration>) -> Option<Duration> {
    duration.and_then(time::at_least_zero)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_newer_contract_stay() {
        let unknown = [0xfa, 0xff, 0xff, 0xff, 0x0f, 1, 7]; // field 536870911
        let known = v1::Task { id: "a".into(), status: 9, ..v1::Task::default() };
        let encoded: Bytes = [&known.encode_to_vec()[..], &unknown].concat().into();
        let task = Task::decode(encoded.clone()).unwrap();
        assert_eq!((task.id(), task.status()), ("a", TaskStatus::Other(9)));
        assert_eq!((&task.unknown_fields()[..], task.encoded()), (&unknown[..], &encoded));
        assert!(!task.status().is_finished());
    }

    #[test]
    fn a_shown_task_hides_what_it_carries() {
        let task = v1::Task {
            payload: Bytes::from_static(b"secret"),
            result: Bytes::from_static(b"secret"),
            headers: HashMap::from([("k".to_owned(), "secret".to_owned())]),
            ..v1::Task::default()
        };
        let task = Task::decode(task.encode_to_vec().into()).unwrap();
        let shown = format!("{task:?}");
        assert!(!shown.contains("secret") && !shown.contains("115, 101"), "{shown}");
    }
}
