//! Answers of the engine, on the wire.

use super::task::{clamp, status, task_bytes};
use crate::status::{Refusal, item_error, stale_detail};
use rdq_engine::{ClaimedTask, Engine, LostClaim, OutboxName};
use rdq_proto::{CONTRACT_VERSION, time, v1};
use rdq_spi::{
    Admission, Durability, Extended, QueueName, QueueStats, Resolved, TaskId, VersionMismatch,
};

pub(crate) fn claimed(tasks: Vec<ClaimedTask>) -> Result<Vec<v1::ClaimedTask>, Refusal> {
    tasks.into_iter().map(claimed_task).collect()
}

fn claimed_task(claim: ClaimedTask) -> Result<v1::ClaimedTask, Refusal> {
    Ok(v1::ClaimedTask {
        task: task_bytes(claim.task)?,
        claim_token: claim.token,
        generation: claim.generation,
        attempt_no: clamp(claim.attempt_no),
        lease_remaining: Some(time::duration(claim.lease_remaining)),
        execution_timeout: claim.execution_timeout.map(time::duration),
        max_attempts: clamp(claim.max_attempts),
        version_mismatch: version_mismatch(claim.version_mismatch).into(),
    })
}

pub(super) fn version_mismatch(value: VersionMismatch) -> v1::HandlerVersionMismatch {
    match value {
        VersionMismatch::RunLatest => v1::HandlerVersionMismatch::RunLatest,
        VersionMismatch::DeadLetter => v1::HandlerVersionMismatch::DeadLetter,
    }
}

pub(crate) fn enqueue_response(id: TaskId, admission: Admission) -> v1::EnqueueResponse {
    v1::EnqueueResponse {
        id: id.into(),
        created: admission.created,
        status: status(admission.status).into(),
    }
}

pub(crate) fn enqueue_result(result: Result<(TaskId, Admission), Refusal>) -> v1::EnqueueResult {
    use v1::enqueue_result::Outcome;
    let outcome = match result {
        Ok((id, admission)) => Outcome::Enqueued(enqueue_response(id, admission)),
        Err(refusal) => Outcome::Error(item_error(&refusal)),
    };
    v1::EnqueueResult { outcome: Some(outcome) }
}

pub(crate) fn resolve_result(result: Result<Resolved, Refusal>) -> v1::ResolveResult {
    use v1::resolve_result::Outcome;
    let outcome = match result {
        Ok(resolved) => Outcome::Resolved(resolved_claim(resolved)),
        Err(refusal) => Outcome::Error(item_error(&refusal)),
    };
    v1::ResolveResult { outcome: Some(outcome) }
}

pub(crate) fn resolved_claim(resolved: Resolved) -> v1::ResolvedClaim {
    v1::ResolvedClaim {
        status: status(resolved.status).into(),
        next_attempt_at: resolved.next_attempt_at.map(|at| time::timestamp(at.millis())),
        replayed: resolved.replayed,
    }
}

pub(crate) fn extend_result(result: Result<Extended, Refusal>) -> v1::ExtendLeaseResult {
    use v1::extend_lease_result::Outcome;
    let outcome = match result {
        Ok(extended) => Outcome::Extended(extend_response(extended)),
        Err(refusal) => Outcome::Error(item_error(&refusal)),
    };
    v1::ExtendLeaseResult { outcome: Some(outcome) }
}

pub(crate) fn extend_response(extended: Extended) -> v1::ExtendLeaseResponse {
    v1::ExtendLeaseResponse {
        lease_expires_at: Some(time::timestamp(extended.lease_expires_at.millis())),
        lease_remaining: Some(time::duration(extended.remaining)),
    }
}

pub(crate) fn lost(claim: LostClaim) -> v1::LostClaim {
    v1::LostClaim {
        id: claim.id.into(),
        generation: claim.generation,
        detail: stale_detail(claim.detail).to_owned(),
    }
}

pub(crate) fn stats((queue, stats): (QueueName, QueueStats)) -> v1::QueueStats {
    let outbox = OutboxName::of_queue(&queue).map(|outbox| outbox.as_str().to_owned());
    v1::QueueStats {
        queue: if outbox.is_some() { String::new() } else { queue.into() },
        outbox,
        pending: count(stats.ready + stats.delayed),
        ready: count(stats.ready),
        delayed: count(stats.delayed),
        in_flight: count(stats.in_flight),
        lapsed: count(stats.lapsed),
        dlq_depth: count(stats.dead),
        succeeded: count(stats.succeeded),
        cancelled: count(stats.cancelled),
        oldest_pending_age: stats.oldest_pending_age.map(time::duration),
    }
}

pub(crate) fn capabilities(engine: &Engine) -> v1::GetCapabilitiesResponse {
    let (capabilities, faculties) = (engine.capabilities(), engine.faculties());
    let durability = match capabilities.durability {
        Durability::None => v1::Durability::None,
        Durability::Process => v1::Durability::Process,
        Durability::PowerCut => v1::Durability::PowerCut,
    };
    let named = [
        ("notify", capabilities.notify),
        ("filter_pushdown", capabilities.filter_pushdown),
        ("batch_enqueue", capabilities.batch_enqueue),
        ("signals", faculties.signals),
        ("streams", faculties.streams),
        ("locks", faculties.locks),
        ("records", faculties.records),
        ("schedules", engine.has_schedules()),
        ("outbox", engine.has_outboxes()),
        ("transactions", faculties.transactions),
        ("interactive_transactions", faculties.interactive),
        ("ledger", faculties.ledger),
    ];
    v1::GetCapabilitiesResponse {
        contract_version: CONTRACT_VERSION.to_owned(),
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        durability: durability.into(),
        capabilities: named.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).into()).collect(),
    }
}

/// A count on the wire.
pub(crate) fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
