//! Between the contract's messages and what a history is made of: requests for a claim that is held,
//! and answers as outcomes. Nothing is called or recorded here.

use super::{calls, recorded::Held};
use rdq_compliance::history::{Answer, Grant, Operation, Outcome};
use rdq_proto::{time, v1};
use rdq_spi::{Call, ClaimToken, TaskId, TaskStatus, Timestamp};
use std::time::Duration;
use tonic::Status;

/// What an error lets its caller know.
pub(super) fn of_status(status: &Status) -> Answer {
    if calls::outcome_unknown(status) { Answer::Unknown } else { Answer::Refused }
}

/// The same, of one item of a batch.
pub(super) fn of_item(error: &v1::ItemError) -> Answer {
    let unknown = error.metadata.get("outcome_unknown").is_some_and(|value| value == "true");
    if unknown { Answer::Unknown } else { Answer::Refused }
}

pub(super) fn enqueue_of(task: &v1::Task) -> Operation {
    let due = task.next_attempt_at.as_ref().map(instant);
    Operation::Enqueue { task: task_id(&task.id), due }
}

pub(super) fn resolve_of(held: &Held, call: Call) -> Operation {
    Operation::Resolve { task: task_id(&held.id), token: ClaimToken(held.token.clone()), call }
}

pub(super) fn granted(claimed: &[v1::ClaimedTask]) -> Outcome {
    Outcome::Claimed(claimed.iter().map(grant).collect())
}

fn grant(claimed: &v1::ClaimedTask) -> Grant {
    let task = calls::decode(&claimed.task);
    Grant {
        task: task_id(&task.id),
        token: ClaimToken(claimed.claim_token.clone()),
        generation: claimed.generation,
        attempt_no: claimed.attempt_no.unsigned_abs(),
        attempt_count: task.attempt_count.unsigned_abs(),
        claimed_at: task.claimed_at.as_ref().map(instant).expect("a claim says when"),
        lease_expires_at: task.lease_expires_at.as_ref().map(instant).expect("and until when"),
    }
}

pub(super) fn resolved(
    status: TaskStatus,
    next_attempt_at: Option<prost_types::Timestamp>,
    replayed: bool,
) -> Outcome {
    let next_attempt_at = next_attempt_at.as_ref().map(instant);
    Outcome::Resolved { status, next_attempt_at, replayed }
}

pub(super) fn extended(answer: &v1::ExtendLeaseResponse) -> Outcome {
    let end = answer.lease_expires_at.as_ref().expect("a lease has an end");
    Outcome::Extended { lease_expires_at: instant(end) }
}

pub(super) fn complete_request(held: &Held) -> v1::CompleteRequest {
    v1::CompleteRequest {
        id: held.id.clone(),
        claim_token: held.token.clone(),
        ..v1::CompleteRequest::default()
    }
}

pub(super) fn fail_request(held: &Held, outcome: v1::AttemptOutcome) -> v1::FailRequest {
    v1::FailRequest {
        id: held.id.clone(),
        claim_token: held.token.clone(),
        attempt: calls::failed("test.failed", outcome),
    }
}

pub(super) fn release_request(held: &Held) -> v1::ReleaseRequest {
    v1::ReleaseRequest { id: held.id.clone(), claim_token: held.token.clone(), delay: None }
}

pub(super) fn extend_request(held: &Held, lease: Duration) -> v1::ExtendLeaseRequest {
    v1::ExtendLeaseRequest {
        id: held.id.clone(),
        claim_token: held.token.clone(),
        lease: Some(time::duration(lease)),
        progress: None,
    }
}

/// A task's id as the history keeps it.
pub(crate) fn task_id(id: &str) -> TaskId {
    TaskId::new(id).expect("the server answers with valid ids")
}

fn instant(timestamp: &prost_types::Timestamp) -> Timestamp {
    Timestamp::from_millis(time::millis(timestamp).expect("the server answers with valid instants"))
}

/// A status as the history keeps it.
pub(crate) fn status_of(status: i32) -> TaskStatus {
    match v1::TaskStatus::try_from(status) {
        Ok(v1::TaskStatus::Pending) => TaskStatus::Pending,
        Ok(v1::TaskStatus::InFlight) => TaskStatus::InFlight,
        Ok(v1::TaskStatus::Succeeded) => TaskStatus::Succeeded,
        Ok(v1::TaskStatus::Dead) => TaskStatus::Dead,
        Ok(v1::TaskStatus::Cancelled) => TaskStatus::Cancelled,
        Ok(v1::TaskStatus::Unspecified) | Err(_) => panic!("{status} is not a status"),
    }
}
