//! Tasks and attempts: the envelope in two, and together again.

use super::request::{moment, name, positive, task_id};
use crate::status::Refusal;
use bytes::{Bytes, BytesMut};
use prost::Message as _;
use rdq_engine::{Submission, new_id};
use rdq_proto::{
    envelope::{join_attempt, join_task, split_attempt, split_task},
    raw, time, v1,
};
use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, Moment, NewTask, Overrides, Task,
    TaskStatus, WorkerId,
};
use std::collections::HashMap;

/// This server reads envelopes up to this version.
const ENVELOPE_VERSION: i32 = 1;
const TEXT_BYTES_MAX: usize = 255;
const HEADERS_BYTES_MAX: usize = 64 << 10;
const PROGRESS_BYTES_MAX: usize = 64 << 10;
/// A task brings at most so many attempts with it.
const ATTEMPTS_MAX: usize = 1_000;
const SYSTEM_HEADER: &str = "rdq.";
/// The number of `Task.id`.
const ID: u32 = 2;

/// A task to admit, from its encoded form.
pub(crate) fn submission(encoded: &Bytes) -> Result<Submission, Refusal> {
    let undecodable = |_| Refusal::invalid("task", "`task` does not decode as a rdq.v1.Task");
    let (mut envelope, attempts) = split_task(encoded).map_err(undecodable)?;
    let task = v1::Task::decode(encoded.clone())
        .map_err(|_| Refusal::invalid("task", "`task` does not decode as a rdq.v1.Task"))?;
    check_version(&task)?;
    check_carried(&task)?;
    let id = if task.id.is_empty() {
        let id = new_id();
        let mut with_id = BytesMut::from(&envelope[..]);
        raw::put_field(&mut with_id, ID, id.as_str().as_bytes());
        envelope = with_id.freeze();
        id
    } else {
        task_id(&task.id)?
    };
    let due = moment(
        ("task.delay", task.delay.as_ref()),
        ("task.next_attempt_at", task.next_attempt_at.as_ref()),
    )?;
    let expires = moment(
        ("task.expires_in", task.expires_in.as_ref()),
        ("task.expires_at", task.expires_at.as_ref()),
    )?;
    let created_at = task.created_at.as_ref();
    Ok(Submission {
        payload_bytes: task.payload.len() as u64,
        task: NewTask {
            id,
            queue: name("task.queue", &task.queue)?,
            handler_ref: name("task.handler_ref", &task.handler_ref)?,
            priority: task.priority,
            due: due.unwrap_or(Moment::NOW),
            expires,
            created_at: created_at
                .map(|at| super::request::instant("task.created_at", at))
                .transpose()?,
            envelope,
            overrides: overrides(&task)?,
            attempt_count: count("task.attempt_count", task.attempt_count)?,
            redrive_count: count("task.redrive_count", task.redrive_count)?,
            lease_expired_count: count("task.lease_expired_count", task.lease_expired_count)?,
            progress: task.progress,
            attempts: carried_attempts(&attempts)?,
        },
    })
}

fn check_version(task: &v1::Task) -> Result<(), Refusal> {
    match task.envelope_version {
        None | Some(1..=ENVELOPE_VERSION) => Ok(()),
        Some(version) => Err(Refusal::invalid(
            "task.envelope_version",
            format!(
                "this server reads envelopes of version 1 to {ENVELOPE_VERSION}, not {version}"
            ),
        )),
    }
}

/// What is carried, not interpreted: only its size and grammar count.
fn check_carried(task: &v1::Task) -> Result<(), Refusal> {
    if let Some(version) = &task.handler_version {
        WorkerId::new(version)
            .map_err(|error| Refusal::Name { field: "task.handler_version", error })?;
    }
    if task.payload_content_type.len() > TEXT_BYTES_MAX {
        let message = format!("`payload_content_type` must be at most {TEXT_BYTES_MAX} bytes");
        return Err(Refusal::invalid("task.payload_content_type", message));
    }
    check_headers("task.headers", &task.headers)?;
    at_most("task.progress", task.progress.len(), PROGRESS_BYTES_MAX)
}

pub(super) fn check_headers(
    field: &'static str,
    headers: &HashMap<String, String>,
) -> Result<(), Refusal> {
    for key in headers.keys() {
        if key.is_empty() || key.len() > TEXT_BYTES_MAX {
            let message = format!("a key of `headers` must be 1 to {TEXT_BYTES_MAX} bytes");
            return Err(Refusal::invalid(field, message));
        }
        if key.starts_with(SYSTEM_HEADER) {
            let message = format!("headers that start with `{SYSTEM_HEADER}` are the system's");
            return Err(Refusal::invalid(field, message));
        }
    }
    let size = headers.iter().map(|(key, value)| key.len() + value.len()).sum();
    at_most(field, size, HEADERS_BYTES_MAX)
}

pub(super) fn at_most(
    field: &'static str,
    size_bytes: usize,
    limit_bytes: usize,
) -> Result<(), Refusal> {
    if size_bytes > limit_bytes {
        return Err(Refusal::TooLarge { field, limit_bytes, size_bytes });
    }
    Ok(())
}

fn overrides(task: &v1::Task) -> Result<Overrides, Refusal> {
    let duration = |field, value: Option<&prost_types::Duration>| {
        value.map(|value| positive(field, value)).transpose()
    };
    let max_attempts = task.max_attempts.map(|max| match u32::try_from(max) {
        Ok(max @ 1..) => Ok(max),
        _ => Err(Refusal::invalid("task.max_attempts", "`max_attempts` must be at least 1")),
    });
    Ok(Overrides {
        max_attempts: max_attempts.transpose()?,
        lease: duration("task.lease", task.lease.as_ref())?,
        initial_backoff: duration("task.initial_backoff", task.initial_backoff.as_ref())?,
        retention_dead: duration("task.retention_dead", task.retention_dead.as_ref())?,
    })
}

fn count(field: &'static str, value: i32) -> Result<u32, Refusal> {
    u32::try_from(value).map_err(|_| Refusal::invalid(field, format!("`{field}` is below 0")))
}

fn carried_attempts(encoded: &[Bytes]) -> Result<Vec<Attempt>, Refusal> {
    if encoded.len() > ATTEMPTS_MAX {
        let message = format!("`attempts` must be at most {ATTEMPTS_MAX} records at admission");
        return Err(Refusal::invalid("task.attempts", message));
    }
    let mut attempts = Vec::with_capacity(encoded.len());
    for attempt in encoded {
        let attempt = carried_attempt(attempt)?;
        let last = attempts.last().map_or(0, |last: &Attempt| last.attempt_no);
        if attempt.attempt_no <= last {
            let message = "`attempts` must have numbers that start above 0 and grow";
            return Err(Refusal::invalid("task.attempts", message));
        }
        attempts.push(attempt);
    }
    Ok(attempts)
}

fn carried_attempt(encoded: &Bytes) -> Result<Attempt, Refusal> {
    const FIELD: &str = "task.attempts";
    let invalid = |message: &str| Refusal::invalid(FIELD, message);
    let undecodable = |_| invalid("`attempts` does not decode as rdq.v1.Attempt");
    let (view, error, extra) = split_attempt(encoded).map_err(undecodable)?;
    let instant = |at: Option<&prost_types::Timestamp>| {
        at.map(|at| super::request::instant(FIELD, at)).transpose()
    };
    let worker_id = (!view.worker_id.is_empty()).then(|| WorkerId::new(&view.worker_id));
    Ok(Attempt {
        attempt_no: count(FIELD, view.attempt_no)?,
        started_at: instant(view.started_at.as_ref())?,
        finished_at: instant(view.finished_at.as_ref())?,
        outcome: outcome(view.outcome)?,
        worker_id: worker_id.transpose().map_err(|error| Refusal::Name { field: FIELD, error })?,
        error: error.map(attempt_error),
        extra,
        folded_count: count(FIELD, view.folded_count)?,
    })
}

fn outcome(value: i32) -> Result<Option<AttemptOutcome>, Refusal> {
    match v1::AttemptOutcome::try_from(value) {
        Ok(v1::AttemptOutcome::Unspecified) => Ok(None),
        Ok(v1::AttemptOutcome::Success) => Ok(Some(AttemptOutcome::Success)),
        Ok(v1::AttemptOutcome::RetryableFailure) => Ok(Some(AttemptOutcome::RetryableFailure)),
        Ok(v1::AttemptOutcome::PermanentFailure) => Ok(Some(AttemptOutcome::PermanentFailure)),
        Ok(v1::AttemptOutcome::LeaseExpired) => Ok(Some(AttemptOutcome::LeaseExpired)),
        Ok(v1::AttemptOutcome::Cancelled) => Ok(Some(AttemptOutcome::Cancelled)),
        Err(_) => {
            Err(Refusal::invalid("attempt.outcome", format!("{value} is not an attempt outcome")))
        }
    }
}

/// What a worker reports of an attempt, and its own judgement of it.
pub(super) fn report(encoded: &Bytes) -> Result<(AttemptReport, Option<AttemptOutcome>), Refusal> {
    if encoded.is_empty() {
        return Ok((AttemptReport::default(), None));
    }
    let undecodable =
        |_| Refusal::invalid("attempt", "`attempt` does not decode as a rdq.v1.Attempt");
    let (view, error, extra) = split_attempt(encoded).map_err(undecodable)?;
    let report = AttemptReport { error: error.map(attempt_error), extra };
    Ok((report, outcome(view.outcome)?))
}

fn attempt_error(error: v1::AttemptError) -> AttemptError {
    AttemptError {
        error_type: error.r#type,
        message: error.message,
        detail: error.detail,
        stack: error.stack,
    }
}

/// A task as answers carry it: what the client sent, then what the server owns.
pub(crate) fn task_bytes(task: Task) -> Result<Bytes, Refusal> {
    let timestamp = |at: Option<rdq_spi::Timestamp>| at.map(|at| time::timestamp(at.millis()));
    let attempts = task.attempts.into_iter().map(attempt_bytes).collect::<Result<_, _>>()?;
    let owned = v1::Task {
        status: status(task.status).into(),
        attempt_count: clamp(task.attempt_count),
        redrive_count: clamp(task.redrive_count),
        lease_expired_count: clamp(task.lease_expired_count),
        progress: task.progress,
        result: task.result,
        claimed_at: timestamp(task.claimed_at),
        claimed_by: task.claimed_by.map_or_else(String::new, String::from),
        next_attempt_at: timestamp(task.next_attempt_at),
        lease_expires_at: timestamp(task.lease_expires_at),
        expires_at: timestamp(task.expires_at),
        created_at: timestamp(Some(task.created_at)),
        finished_at: timestamp(task.finished_at),
        attempts,
        ..v1::Task::default()
    };
    Ok(join_task(&task.envelope, &owned))
}

fn attempt_bytes(attempt: Attempt) -> Result<Bytes, Refusal> {
    let timestamp = |at: Option<rdq_spi::Timestamp>| at.map(|at| time::timestamp(at.millis()));
    let outcome = match attempt.outcome {
        None => v1::AttemptOutcome::Unspecified,
        Some(AttemptOutcome::Success) => v1::AttemptOutcome::Success,
        Some(AttemptOutcome::RetryableFailure) => v1::AttemptOutcome::RetryableFailure,
        Some(AttemptOutcome::PermanentFailure) => v1::AttemptOutcome::PermanentFailure,
        Some(AttemptOutcome::LeaseExpired) => v1::AttemptOutcome::LeaseExpired,
        Some(AttemptOutcome::Cancelled) => v1::AttemptOutcome::Cancelled,
    };
    let known = v1::Attempt {
        attempt_no: clamp(attempt.attempt_no),
        started_at: timestamp(attempt.started_at),
        finished_at: timestamp(attempt.finished_at),
        outcome: outcome.into(),
        error: Bytes::new(),
        worker_id: attempt.worker_id.map_or_else(String::new, String::from),
        folded_count: clamp(attempt.folded_count),
    };
    let error = attempt.error.map(|error| v1::AttemptError {
        r#type: error.error_type,
        message: error.message,
        detail: error.detail,
        stack: error.stack,
    });
    // Admission checked what is stored; if it does not decode any more, the storage changed it.
    join_attempt(&known, error.as_ref(), &attempt.extra)
        .map_err(|_| Refusal::internal(&format!("task attempt {} is corrupt", known.attempt_no)))
}

/// A status on the wire.
pub(crate) fn status(status: TaskStatus) -> v1::TaskStatus {
    match status {
        TaskStatus::Pending => v1::TaskStatus::Pending,
        TaskStatus::InFlight => v1::TaskStatus::InFlight,
        TaskStatus::Succeeded => v1::TaskStatus::Succeeded,
        TaskStatus::Dead => v1::TaskStatus::Dead,
        TaskStatus::Cancelled => v1::TaskStatus::Cancelled,
    }
}

/// A count on the wire.
pub(super) fn clamp(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
