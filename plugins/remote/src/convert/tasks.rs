//! Tasks and their attempts. What the client sent is never decoded: it goes and comes as it is.

use super::{Broken, on_wire};
use bytes::Bytes;
use prost::Message as _;
use rdq_proto::{
    envelope::{join_attempt, join_task, split_attempt, split_task},
    time, v1,
};
use rdq_spi::{
    Admission, Attempt, AttemptError, AttemptOutcome, AttemptReport, Moment, NewTask, Overrides,
    QueueName, Result, StorageError, Task, TaskId, TaskStatus, Timestamp, WorkerId,
};
use std::time::Duration;

/// An encoded task to admit.
pub(crate) fn new_task(new: NewTask) -> Result<Bytes> {
    let (delay, next_attempt_at) = match new.due {
        Moment::NOW => (None, None),
        Moment::In(delay) => (Some(time::duration(delay)), None),
        Moment::At(at) => (None, Some(instant(at))),
    };
    let (expires_in, expires_at) = match new.expires {
        None => (None, None),
        Some(Moment::In(span)) => (Some(time::duration(span)), None),
        Some(Moment::At(at)) => (None, Some(instant(at))),
    };
    let owned = v1::Task {
        delay,
        next_attempt_at,
        expires_in,
        expires_at,
        created_at: new.created_at.map(instant),
        attempt_count: on_wire(new.attempt_count),
        redrive_count: on_wire(new.redrive_count),
        lease_expired_count: on_wire(new.lease_expired_count),
        progress: new.progress,
        attempts: new.attempts.into_iter().map(attempt_on_wire).collect::<Result<_>>()?,
        ..v1::Task::default()
    };
    Ok(join_task(&new.envelope, &owned))
}

fn attempt_on_wire(attempt: Attempt) -> Result<Bytes> {
    let outcome = match attempt.outcome {
        None => v1::AttemptOutcome::Unspecified,
        Some(AttemptOutcome::Success) => v1::AttemptOutcome::Success,
        Some(AttemptOutcome::RetryableFailure) => v1::AttemptOutcome::RetryableFailure,
        Some(AttemptOutcome::PermanentFailure) => v1::AttemptOutcome::PermanentFailure,
        Some(AttemptOutcome::LeaseExpired) => v1::AttemptOutcome::LeaseExpired,
        Some(AttemptOutcome::Cancelled) => v1::AttemptOutcome::Cancelled,
    };
    let known = v1::Attempt {
        attempt_no: on_wire(attempt.attempt_no),
        started_at: attempt.started_at.map(instant),
        finished_at: attempt.finished_at.map(instant),
        outcome: outcome.into(),
        worker_id: attempt.worker_id.map_or_else(String::new, String::from),
        folded_count: on_wire(attempt.folded_count),
        ..v1::Attempt::default()
    };
    encoded("enqueue", &known, attempt.error, &attempt.extra)
}

/// What a worker reports, encoded as an attempt; nothing where it reports nothing.
pub(super) fn report_on_wire(report: AttemptReport) -> Result<Bytes> {
    encoded("resolve", &v1::Attempt::default(), report.error, &report.extra)
}

fn encoded(
    operation: &'static str,
    known: &v1::Attempt,
    error: Option<AttemptError>,
    extra: &Bytes,
) -> Result<Bytes> {
    let error = error.map(|error| v1::AttemptError {
        r#type: error.error_type,
        message: error.message,
        detail: error.detail,
        stack: error.stack,
    });
    join_attempt(known, error.as_ref(), extra).map_err(|malformed| StorageError::Refused {
        operation,
        message: format!("an attempt's unknown fields do not decode: {malformed}"),
    })
}

pub(crate) fn admission(response: &v1::EnqueueResponse) -> Result<Admission, Broken> {
    Ok(Admission { created: response.created, status: status(response.status)? })
}

/// A task from its encoded form.
pub(crate) fn task(encoded: &Bytes) -> Result<Task, Broken> {
    let undecodable = "has a task that does not decode";
    let (envelope, attempts) = split_task(encoded).map_err(|_| Broken(undecodable))?;
    let view = v1::Task::decode(encoded.clone()).map_err(|_| Broken(undecodable))?;
    let attempts = attempts.iter().map(attempt).collect::<Result<Vec<_>, _>>()?;
    let last_attempt_no = attempts.iter().map(|attempt| attempt.attempt_no).max();
    let worker = (!view.claimed_by.is_empty()).then(|| WorkerId::stored(view.claimed_by));
    Ok(Task {
        envelope,
        overrides: Overrides {
            max_attempts: view.max_attempts.map(at_least_zero),
            lease: span(view.lease.as_ref()),
            initial_backoff: span(view.initial_backoff.as_ref()),
            retention_dead: span(view.retention_dead.as_ref()),
        },
        status: status(view.status)?,
        attempt_count: at_least_zero(view.attempt_count),
        redrive_count: at_least_zero(view.redrive_count),
        lease_expired_count: at_least_zero(view.lease_expired_count),
        claimed_at: moment(view.claimed_at.as_ref())?,
        claimed_by: worker,
        next_attempt_at: moment(view.next_attempt_at.as_ref())?,
        lease_expires_at: moment(view.lease_expires_at.as_ref())?,
        expires_at: moment(view.expires_at.as_ref())?,
        created_at: moment(view.created_at.as_ref())?.ok_or(Broken("has no created_at"))?,
        finished_at: moment(view.finished_at.as_ref())?,
        // An answer without the history does not say; the count is the least that it can be.
        last_attempt_no: last_attempt_no.unwrap_or_else(|| at_least_zero(view.attempt_count)),
        attempts,
        id: TaskId::stored(view.id),
        queue: QueueName::stored(view.queue),
        handler_ref: QueueName::stored(view.handler_ref),
        priority: view.priority,
        progress: view.progress,
        result: view.result,
    })
}

fn attempt(encoded: &Bytes) -> Result<Attempt, Broken> {
    let undecodable = |_| Broken("has an attempt that does not decode");
    let (known, error, extra) = split_attempt(encoded).map_err(undecodable)?;
    Ok(Attempt {
        attempt_no: at_least_zero(known.attempt_no),
        started_at: moment(known.started_at.as_ref())?,
        finished_at: moment(known.finished_at.as_ref())?,
        outcome: outcome(known.outcome),
        worker_id: (!known.worker_id.is_empty()).then(|| WorkerId::stored(known.worker_id)),
        error: error.map(|error| AttemptError {
            error_type: error.r#type,
            message: error.message,
            detail: error.detail,
            stack: error.stack,
        }),
        extra,
        folded_count: at_least_zero(known.folded_count),
    })
}

fn outcome(value: i32) -> Option<AttemptOutcome> {
    match v1::AttemptOutcome::try_from(value) {
        Ok(v1::AttemptOutcome::Unspecified) => None,
        Ok(v1::AttemptOutcome::Success) => Some(AttemptOutcome::Success),
        Ok(v1::AttemptOutcome::PermanentFailure) => Some(AttemptOutcome::PermanentFailure),
        Ok(v1::AttemptOutcome::LeaseExpired) => Some(AttemptOutcome::LeaseExpired),
        Ok(v1::AttemptOutcome::Cancelled) => Some(AttemptOutcome::Cancelled),
        // The contract: one that is not known is a retryable failure.
        Ok(v1::AttemptOutcome::RetryableFailure) | Err(_) => Some(AttemptOutcome::RetryableFailure),
    }
}

pub(super) fn status(value: i32) -> Result<TaskStatus, Broken> {
    match v1::TaskStatus::try_from(value) {
        Ok(v1::TaskStatus::Pending) => Ok(TaskStatus::Pending),
        Ok(v1::TaskStatus::InFlight) => Ok(TaskStatus::InFlight),
        Ok(v1::TaskStatus::Succeeded) => Ok(TaskStatus::Succeeded),
        Ok(v1::TaskStatus::Dead) => Ok(TaskStatus::Dead),
        Ok(v1::TaskStatus::Cancelled) => Ok(TaskStatus::Cancelled),
        Ok(v1::TaskStatus::Unspecified) | Err(_) => Err(Broken("has a status that is not known")),
    }
}

pub(super) fn status_on_wire(status: TaskStatus) -> v1::TaskStatus {
    match status {
        TaskStatus::Pending => v1::TaskStatus::Pending,
        TaskStatus::InFlight => v1::TaskStatus::InFlight,
        TaskStatus::Succeeded => v1::TaskStatus::Succeeded,
        TaskStatus::Dead => v1::TaskStatus::Dead,
        TaskStatus::Cancelled => v1::TaskStatus::Cancelled,
    }
}

pub(super) fn instant(at: Timestamp) -> prost_types::Timestamp {
    time::timestamp(at.millis())
}

pub(super) fn moment(at: Option<&prost_types::Timestamp>) -> Result<Option<Timestamp>, Broken> {
    let read = |at| time::millis(at).ok_or(Broken("has an instant out of its range"));
    Ok(at.map(read).transpose()?.map(Timestamp::from_millis))
}

fn span(value: Option<&prost_types::Duration>) -> Option<Duration> {
    value.and_then(time::at_least_zero)
}

pub(super) fn at_least_zero(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    /// Field 536870911, which no version knows.
    const UNKNOWN: &[u8] = &[0xfa, 0xff, 0xff, 0xff, 0x0f, 1, 7];

    fn sent() -> NewTask {
        let known = v1::Task {
            id: "t".into(),
            queue: "q".into(),
            handler_ref: "h".into(),
            priority: -3,
            max_attempts: Some(2),
            lease: Some(time::duration(Duration::from_millis(1_500))),
            ..v1::Task::default()
        };
        let mut extra = vec![0x2a, u8::try_from(UNKNOWN.len()).unwrap()]; // `error`, and inside it
        extra.extend_from_slice(UNKNOWN);
        NewTask {
            id: TaskId::stored("t"),
            queue: QueueName::stored("q"),
            handler_ref: QueueName::stored("h"),
            priority: -3,
            due: Moment::At(Timestamp::from_millis(5)),
            expires: Some(Moment::At(Timestamp::MAX)),
            created_at: Some(Timestamp::MIN),
            envelope: [&known.encode_to_vec()[..], UNKNOWN].concat().into(),
            overrides: Overrides {
                max_attempts: Some(2),
                lease: Some(Duration::from_millis(1_500)),
                ..Overrides::default()
            },
            attempt_count: 1,
            redrive_count: 2,
            lease_expired_count: 3,
            progress: Bytes::from_static(b"half"),
            attempts: vec![Attempt {
                attempt_no: 7,
                started_at: Some(Timestamp::from_millis(-1)),
                finished_at: None,
                outcome: Some(AttemptOutcome::Cancelled),
                worker_id: Some(WorkerId::stored("w")),
                error: Some(AttemptError::new("type", "message")),
                extra: [UNKNOWN, &extra].concat().into(),
                folded_count: 4,
            }],
        }
    }

    #[test]
    fn a_task_comes_back_as_it_went_unknown_fields_included() {
        let new = sent();
        let status = v1::Task { status: v1::TaskStatus::Pending.into(), ..v1::Task::default() };
        let encoded = new_task(new.clone()).unwrap();
        let task = task(&[&encoded[..], &status.encode_to_vec()].concat().into()).unwrap();

        assert_eq!(task.envelope, new.envelope);
        assert_eq!(task.attempts, new.attempts);
        assert_eq!((task.priority, task.overrides), (new.priority, new.overrides));
        assert_eq!(task.next_attempt_at, Some(Timestamp::from_millis(5)));
        assert_eq!((task.expires_at, task.created_at), (Some(Timestamp::MAX), Timestamp::MIN));
        let counts = (task.attempt_count, task.redrive_count, task.lease_expired_count);
        assert_eq!((counts, task.last_attempt_no), ((1, 2, 3), 7));
        assert_eq!((task.progress, task.result), (new.progress, Bytes::new()));
    }

    #[test]
    fn answers_that_are_none_are_broken() {
        for broken in [&b"\xff"[..], b"", b"\xe8\x01\x01"] {
            assert!(task(&Bytes::copy_from_slice(broken)).is_err(), "{broken:?}");
        }
    }
}
