//! Resolutions and heartbeats.

use super::{
    request::{delay, lease, moment, task_id},
    task::report,
};
use crate::status::Refusal;
use bytes::Bytes;
use rdq_engine::{Action, ExtendRequest, Judgement, ResolveRequest};
use rdq_proto::v1::{self, resolution::Call};
use rdq_spi::{AttemptOutcome, Moment, TaskId};
use std::time::Duration;

fn claim(id: &str, token: Bytes) -> Result<(TaskId, Bytes), Refusal> {
    let task_id = task_id(id)?;
    if token.is_empty() {
        return Err(Refusal::invalid("claim_token", "`claim_token` is required"));
    }
    Ok((task_id, token))
}

fn request(id: &str, token: Bytes, action: Action) -> Result<ResolveRequest, Refusal> {
    let (task_id, token) = claim(id, token)?;
    Ok(ResolveRequest { task_id, token, action, decided_fail: false, strict: false })
}

pub(crate) fn resolve_complete(from: v1::CompleteRequest) -> Result<ResolveRequest, Refusal> {
    let (attempt, _) = report(&from.attempt)?;
    request(&from.id, from.claim_token, Action::Complete { attempt, result: from.result })
}

pub(crate) fn resolve_reschedule(from: v1::RescheduleRequest) -> Result<ResolveRequest, Refusal> {
    let (attempt, _) = report(&from.attempt)?;
    let due =
        moment(("delay", from.delay.as_ref()), ("next_attempt_at", from.next_attempt_at.as_ref()))?;
    let due = due.unwrap_or(Moment::NOW);
    request(&from.id, from.claim_token, Action::Reschedule { attempt, due })
}

pub(crate) fn resolve_dead_letter(from: v1::DeadLetterRequest) -> Result<ResolveRequest, Refusal> {
    let (attempt, _) = report(&from.attempt)?;
    request(&from.id, from.claim_token, Action::DeadLetter { attempt })
}

pub(crate) fn resolve_fail(from: v1::FailRequest) -> Result<ResolveRequest, Refusal> {
    let (attempt, outcome) = report(&from.attempt)?;
    let judgement = match outcome {
        None => None,
        Some(AttemptOutcome::RetryableFailure) => Some(Judgement::Retryable),
        Some(AttemptOutcome::PermanentFailure) => Some(Judgement::Permanent),
        Some(
            AttemptOutcome::Success | AttemptOutcome::LeaseExpired | AttemptOutcome::Cancelled,
        ) => {
            return Err(Refusal::invalid(
                "attempt.outcome",
                "the outcome of a failure is RETRYABLE_FAILURE, PERMANENT_FAILURE or unset",
            ));
        }
    };
    request(&from.id, from.claim_token, Action::Fail { attempt, judgement })
}

pub(crate) fn resolve_release(from: v1::ReleaseRequest) -> Result<ResolveRequest, Refusal> {
    let after = from.delay.as_ref().map(|value| delay("delay", value)).transpose()?;
    let action = Action::Release { delay: after.unwrap_or(Duration::ZERO) };
    request(&from.id, from.claim_token, action)
}

pub(crate) fn resolution(from: v1::Resolution) -> Result<ResolveRequest, Refusal> {
    let decided_fail = from.decided_fail;
    let request = match from.call {
        Some(Call::Complete(call)) => resolve_complete(call),
        Some(Call::Reschedule(call)) => resolve_reschedule(call),
        Some(Call::DeadLetter(call)) => resolve_dead_letter(call),
        Some(Call::Fail(call)) => resolve_fail(call),
        Some(Call::Release(call)) => resolve_release(call),
        None => Err(Refusal::invalid("call", "a resolution must have exactly one call")),
    }?;
    let decidable = matches!(request.action, Action::Reschedule { .. } | Action::DeadLetter { .. });
    if decided_fail && !decidable {
        return Err(Refusal::invalid(
            "decided_fail",
            "`decided_fail` goes with `reschedule` or `dead_letter`",
        ));
    }
    Ok(ResolveRequest { decided_fail, ..request })
}

pub(crate) fn extend(from: v1::ExtendLeaseRequest) -> Result<ExtendRequest, Refusal> {
    let (task_id, token) = claim(&from.id, from.claim_token)?;
    let lease = lease(from.lease.as_ref())?;
    Ok(ExtendRequest { task_id, token, lease, progress: from.progress, strict: false })
}

pub(crate) fn live_claim(from: v1::ClaimRef) -> Result<(TaskId, Bytes), Refusal> {
    claim(&from.id, from.claim_token)
}
