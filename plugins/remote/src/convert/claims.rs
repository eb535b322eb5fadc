//! Claims, heartbeats and resolutions.

use super::{
    Broken, on_wire,
    tasks::{at_least_zero, instant, moment, report_on_wire, status, task},
};
use prost_types::Duration as WireDuration;
use rdq_proto::{
    time,
    v1::{self, resolution::Call as WireCall},
};
use rdq_spi::{
    Call, Cancelled, Claim, ClaimParams, ClaimRef, ClaimToken, ExtendParams, Extended, Moment,
    Outcome, Resolution, Resolved, Result, StorageError,
};
use std::time::Duration;

pub(crate) fn claim_request(params: &ClaimParams) -> v1::ClaimDueRequest {
    let lease_max = params.queues.iter().map(|from| from.lease_max).min();
    let lease = params.lease.map(|lease| lease.min(lease_max.unwrap_or(Duration::MAX)));
    v1::ClaimDueRequest {
        queues: params.queues.iter().map(|from| from.queue.as_str().to_owned()).collect(),
        limit: Some(on_wire(params.limit)),
        lease: lease.map(time::duration),
        worker_id: params.worker_id.as_str().to_owned(),
        follow: false,
        max_in_flight: None,
    }
}

pub(crate) fn claim(claimed: v1::ClaimedTask) -> Result<Claim, Broken> {
    let mut task = task(&claimed.task)?;
    // Claims carry the newest attempts alone; the number of this one says what came before.
    task.last_attempt_no = at_least_zero(claimed.attempt_no).saturating_sub(1);
    let (Some(claimed_at), Some(ends_at)) = (task.claimed_at, task.lease_expires_at) else {
        return Err(Broken("has a claimed task without a lease"));
    };
    Ok(Claim {
        task,
        token: ClaimToken(claimed.claim_token),
        generation: claimed.generation,
        lease: ends_at.since(claimed_at),
    })
}

pub(crate) fn extend_request(params: ExtendParams) -> v1::ExtendLeaseRequest {
    v1::ExtendLeaseRequest {
        id: params.claim.task_id.as_str().to_owned(),
        claim_token: params.claim.token.0,
        lease: Some(time::duration(params.lease)),
        progress: params.progress,
    }
}

pub(crate) fn extended(response: &v1::ExtendLeaseResponse) -> Result<Extended, Broken> {
    let ends_at = moment(response.lease_expires_at.as_ref())?;
    Ok(Extended {
        lease_expires_at: ends_at.ok_or(Broken("has no lease_expires_at"))?,
        remaining: remaining(response.lease_remaining.as_ref()),
    })
}

fn remaining(left: Option<&WireDuration>) -> Duration {
    left.and_then(time::at_least_zero).unwrap_or_default()
}

pub(crate) fn resolution(resolution: Resolution) -> Result<v1::Resolution> {
    let Resolution { claim, call, outcome, strict: _ } = resolution;
    let ClaimRef { task_id, token: ClaimToken(claim_token) } = claim;
    let id = String::from(task_id);
    let wire = match (call, outcome) {
        (Call::Complete, Outcome::Succeed { attempt, result, forget: _ }) => {
            let attempt = report_on_wire(attempt)?;
            WireCall::Complete(v1::CompleteRequest { id, claim_token, attempt, result })
        }
        (Call::Reschedule | Call::Fail, Outcome::Retry { attempt, due }) => {
            let attempt = report_on_wire(attempt)?;
            let (delay, next_attempt_at) = match due {
                Moment::In(delay) => (Some(time::duration(delay)), None),
                Moment::At(at) => (None, Some(instant(at))),
            };
            let request =
                v1::RescheduleRequest { id, claim_token, attempt, next_attempt_at, delay };
            WireCall::Reschedule(request)
        }
        (Call::DeadLetter | Call::Fail, Outcome::Die { attempt }) => {
            let attempt = report_on_wire(attempt)?;
            WireCall::DeadLetter(v1::DeadLetterRequest { id, claim_token, attempt })
        }
        (Call::Release, Outcome::GiveBack { due: Moment::In(delay) }) => {
            let delay = Some(time::duration(delay));
            WireCall::Release(v1::ReleaseRequest { id, claim_token, delay })
        }
        (Call::Release, Outcome::GiveBack { due: Moment::At(_) }) => {
            return Err(StorageError::Unsupported { operation: "a release until an instant" });
        }
        (call, _) => {
            let message = format!("{call:?} does not lead to that outcome");
            return Err(StorageError::Refused { operation: "resolve", message });
        }
    };
    Ok(v1::Resolution { call: Some(wire), decided_fail: call == Call::Fail })
}

/// A claim given back unspent, due at once.
pub(crate) fn release(claim: &Claim) -> v1::Resolution {
    let request = v1::ReleaseRequest {
        id: claim.task.id.as_str().to_owned(),
        claim_token: claim.token.0.clone(),
        delay: None,
    };
    v1::Resolution { call: Some(WireCall::Release(request)), decided_fail: false }
}

pub(crate) fn resolved(resolved: &v1::ResolvedClaim) -> Result<Resolved, Broken> {
    Ok(Resolved {
        status: status(resolved.status)?,
        next_attempt_at: moment(resolved.next_attempt_at.as_ref())?,
        replayed: resolved.replayed,
    })
}

pub(crate) fn live_claims_request(claims: &[ClaimRef]) -> v1::LiveClaimsRequest {
    let claim = |claim: &ClaimRef| v1::ClaimRef {
        id: claim.task_id.as_str().to_owned(),
        claim_token: claim.token.0.clone(),
    };
    v1::LiveClaimsRequest { claims: claims.iter().map(claim).collect() }
}

pub(crate) fn live_claim(claim: &v1::LiveClaim) -> Option<Duration> {
    claim.live.then(|| remaining(claim.lease_remaining.as_ref()))
}

pub(crate) fn cancelled(response: v1::CancelResponse) -> Result<Cancelled, Broken> {
    Ok(Cancelled { status: status(response.status)?, changed: response.cancelled })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rdq_spi::{AttemptReport, TaskId};

    fn on_the_wire(call: Call, outcome: Outcome) -> Result<v1::Resolution> {
        let token = ClaimToken(Bytes::from_static(b"token"));
        let claim = ClaimRef { task_id: TaskId::stored("t"), token };
        resolution(Resolution { claim, call, outcome, strict: false })
    }

    #[test]
    fn a_decided_fail_is_the_call_that_does_it_and_is_marked() {
        let attempt = AttemptReport::default;
        let due = Moment::In(Duration::from_secs(1));
        let retry = on_the_wire(Call::Fail, Outcome::Retry { attempt: attempt(), due }).unwrap();
        assert!(matches!(retry.call, Some(WireCall::Reschedule(_))) && retry.decided_fail);
        let death = on_the_wire(Call::Fail, Outcome::Die { attempt: attempt() }).unwrap();
        assert!(matches!(death.call, Some(WireCall::DeadLetter(_))) && death.decided_fail);
        let death = on_the_wire(Call::DeadLetter, Outcome::Die { attempt: attempt() }).unwrap();
        assert!(matches!(death.call, Some(WireCall::DeadLetter(_))) && !death.decided_fail);
    }

    #[test]
    fn what_no_call_does_is_refused() {
        let death = Outcome::Die { attempt: AttemptReport::default() };
        let error = on_the_wire(Call::Complete, death).unwrap_err();
        assert!(matches!(error, StorageError::Refused { .. }), "{error:?}");
        let due = Moment::At(rdq_spi::Timestamp::MAX);
        let error = on_the_wire(Call::Release, Outcome::GiveBack { due }).unwrap_err();
        assert!(matches!(error, StorageError::Unsupported { .. }), "{error:?}");
    }
}
