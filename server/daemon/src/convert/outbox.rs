//! Outboxes: their messages are tasks whose envelopes are made here.

use super::{
    answer::count,
    request::{delay, extent, lease, name, task_id, worker_id},
    task::{at_most, check_headers, clamp},
};
use crate::status::Refusal;
use bytes::{Bytes, BytesMut};
use prost::Message as _;
use rdq_engine::{ClaimMessagesRequest, ClaimedTask, NewMessage, OutboxName, new_id};
use rdq_proto::{raw, time, v1};
use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, HeldClaim, QueueName, Task, Timestamp,
};
use std::time::Duration;

const LIMIT: u32 = 1;
const LIMIT_MAX: u32 = 1_000;
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
const OUTBOXES_MAX: usize = 64;
/// The server's own field of an attempt of a message: how long after its end the message is
/// available. A number that the contract will not come to.
const AVAILABLE_AFTER: u32 = 15_000;

pub(crate) fn outbox(field: &'static str, text: &str) -> Result<OutboxName, Refusal> {
    name(field, text).map(OutboxName::new)
}

/// An outbox that may be named.
pub(crate) fn optional_outbox(text: Option<&String>) -> Result<Option<OutboxName>, Refusal> {
    text.map(|text| outbox("outbox", text)).transpose()
}

/// The queue that a call is about: named as such, or as an outbox.
pub(crate) fn queue_or_outbox(
    queue: &str,
    by_outbox: Option<&String>,
) -> Result<QueueName, Refusal> {
    match by_outbox {
        None => name("queue", queue),
        Some(_) if !queue.is_empty() => {
            Err(Refusal::invalid("outbox", "`queue` and `outbox` exclude each other"))
        }
        Some(text) => Ok(outbox("outbox", text)?.queue()),
    }
}

/// Outboxes whose queues are counted.
pub(crate) fn outboxes(names: &[String]) -> Result<Vec<QueueName>, Refusal> {
    if names.len() > OUTBOXES_MAX {
        let message = format!("`outboxes` must name at most {OUTBOXES_MAX} outboxes");
        return Err(Refusal::invalid("outboxes", message));
    }
    names.iter().map(|text| Ok(outbox("outboxes", text)?.queue())).collect()
}

pub(crate) fn new_message(from: v1::OutboxServiceEnqueueRequest) -> Result<NewMessage, Refusal> {
    let outbox = outbox("outbox", &from.outbox)?;
    let id = if from.id.is_empty() { new_id() } else { task_id(&from.id)? };
    check_headers("headers", &from.headers)?;
    at_most("payload", from.payload.len(), PAYLOAD_BYTES_MAX)?;
    let after = from.delay.as_ref().map(|value| delay("delay", value)).transpose()?;
    let after = after.unwrap_or_default();
    let payload_bytes = from.payload.len() as u64;
    let envelope = v1::Task {
        id: id.as_str().to_owned(),
        queue: outbox.queue().into(),
        handler_ref: OutboxName::handler().into(),
        payload: from.payload,
        headers: from.headers,
        // What a claim of it says of when it became available.
        delay: (!after.is_zero()).then(|| time::duration(after)),
        ..v1::Task::default()
    };
    let envelope = envelope.encode_to_vec().into();
    Ok(NewMessage { outbox, id, envelope, payload_bytes, delay: after })
}

pub(crate) fn claim_messages(
    from: &v1::ClaimBatchRequest,
) -> Result<ClaimMessagesRequest, Refusal> {
    Ok(ClaimMessagesRequest {
        outbox: optional_outbox(from.outbox.as_ref())?,
        limit: extent(from.limit, LIMIT, LIMIT_MAX),
        lease: lease(from.lease.as_ref())?,
        worker_id: worker_id(&from.worker_id)?,
    })
}

pub(crate) fn held_message(id: &str, worker: &str, generation: i64) -> Result<HeldClaim, Refusal> {
    Ok(HeldClaim { task_id: task_id(id)?, worker_id: worker_id(worker)?, generation })
}

/// A claim that goes back because the delivery failed, what went wrong, and for how long.
pub(crate) fn release_message(
    from: v1::ReleaseWithErrorRequest,
) -> Result<(HeldClaim, AttemptReport, Duration), Refusal> {
    let claim = held_message(&from.id, &from.worker_id, from.generation)?;
    let after = from.delay.as_ref().map(|value| delay("delay", value)).transpose()?;
    let after = after.unwrap_or_default();
    Ok((claim, failed_delivery(from.error, Some(after)), after))
}

/// A delivery that failed; the message is available again after this, or never.
pub(crate) fn failed_delivery(error: String, after: Option<Duration>) -> AttemptReport {
    let mut extra = BytesMut::new();
    if let Some(after) = after.filter(|after| !after.is_zero()) {
        raw::put_field(&mut extra, AVAILABLE_AFTER, &time::duration(after).encode_to_vec());
    }
    let error = (!error.is_empty()).then(|| AttemptError::new("", error));
    AttemptReport { error, extra: extra.freeze() }
}

fn available_after(attempt: &Attempt) -> Duration {
    let fields = raw::split(&attempt.extra, |number| number != AVAILABLE_AFTER);
    let value = fields.ok().and_then(|(_, mut fields)| fields.pop()?.value);
    let after = value.and_then(|value: Bytes| prost_types::Duration::decode(value).ok());
    after.as_ref().and_then(time::at_least_zero).unwrap_or_default()
}

/// A claimed message.
pub(crate) fn message(claimed: ClaimedTask) -> Result<v1::OutboxMessage, Refusal> {
    let ClaimedTask { task, generation, .. } = claimed;
    let corrupt = || Refusal::internal(&format!("message {:?} does not decode", task.id));
    let outbox = OutboxName::of_queue(&task.queue).ok_or_else(corrupt)?;
    let sent = v1::Task::decode(task.envelope.clone()).map_err(|_| corrupt())?;
    let failed = task.attempts.iter().rev().find(|attempt| has_failed(attempt));
    let last_error = failed.and_then(|attempt| attempt.error.as_ref());
    let timestamp = |at: Option<Timestamp>| at.map(|at| time::timestamp(at.millis()));
    Ok(v1::OutboxMessage {
        outbox: outbox.as_str().to_owned(),
        attempt_count: clamp(task.attempt_count.saturating_add(1)),
        last_error: last_error.map_or_else(String::new, |error| error.message.clone()),
        available_at: timestamp(available_at(&task, &sent)),
        created_at: timestamp(Some(task.created_at)),
        worker_id: task.claimed_by.map_or_else(String::new, String::from),
        generation,
        lease_expires_at: timestamp(task.lease_expires_at),
        payload: sent.payload,
        headers: sent.headers,
        id: task.id.into(),
    })
}

fn has_failed(attempt: &Attempt) -> bool {
    attempt.outcome == Some(AttemptOutcome::RetryableFailure)
}

/// When a claimed message became available.
fn available_at(task: &Task, sent: &v1::Task) -> Option<Timestamp> {
    let available = match task.attempts.last() {
        None => {
            let delay = sent.delay.as_ref().and_then(time::at_least_zero).unwrap_or_default();
            Some(task.created_at.after(delay))
        }
        Some(attempt) if has_failed(attempt) => {
            attempt.finished_at.map(|at| at.after(available_after(attempt)))
        }
        // Of a lapsed claim and of a redrive nothing earlier is known than this claim.
        Some(_) => None,
    };
    match (available, task.claimed_at) {
        (Some(available), Some(claimed)) => Some(available.min(claimed)),
        (available, claimed) => available.or(claimed),
    }
}

pub(crate) fn unprojected((outbox, unprojected): (OutboxName, u64)) -> v1::OutboxCount {
    v1::OutboxCount { outbox: outbox.as_str().to_owned(), unprojected: count(unprojected) }
}
