//! Claims over the wire: one answer for a call, and what is too much of it given back.

use crate::{
    client::{Client, answer, in_time, request},
    convert,
    errors::{Failure, Operation},
    pages::fitting,
};
use rdq_proto::v1;
use rdq_spi::{Cancelled, Claim, ClaimParams, Claimed, Result, TaskId};
use std::time::Duration;

/// An answer this large may have been cut for its size: more may be due.
const LARGE_ANSWER_BYTES: usize = 1 << 20;

pub(crate) async fn claim_once(mut client: Client, params: &ClaimParams) -> Result<Claimed> {
    let claim_due = Operation::changing("claim_due");
    let asked = convert::claim_request(params);
    let tasks = in_time(async {
        let mut stream = client.tasks.claim_due(asked).await?.into_inner();
        let mut tasks = Vec::new();
        while let Some(message) = stream.message().await? {
            tasks.extend(message.tasks);
        }
        Ok(tasks)
    });
    let tasks = tasks.await.map_err(|failure| failure.error(claim_due, None))?;
    let claims = tasks.into_iter().map(convert::claim).collect::<Result<Vec<_>, _>>();
    let mut claims = claims.map_err(|broken| claim_due.broken(broken))?;

    let (fitting, bytes) = fitting(claims.iter().map(|claim| &claim.task), params.bytes_max);
    let is_full = claims.len() >= params.limit as usize || bytes >= LARGE_ANSWER_BYTES;
    let surplus: Vec<Claim> = claims.split_off(fitting);
    let more = is_full || !surplus.is_empty();
    if !surplus.is_empty() {
        // What cannot be given back now comes back when its lease ends.
        let releases = surplus.iter().map(convert::release).collect();
        let _ = resolve_batch(client, releases).await;
    }
    Ok(Claimed { claims, next_due_in: more.then_some(Duration::ZERO) })
}

pub(crate) async fn cancel(mut client: Client, task: TaskId) -> Result<Cancelled> {
    let cancel = Operation::changing("cancel");
    let asked = request(v1::CancelRequest { id: task.as_str().to_owned() });
    let response = answer(client.tasks.cancel(asked)).await;
    let response = response.map_err(|failure| failure.error(cancel, Some(&task)))?;
    convert::cancelled(&response).map_err(|broken| cancel.broken(broken))
}

/// Ends claims, each with its own answer.
pub(crate) async fn resolve_batch(
    mut client: Client,
    resolutions: Vec<v1::Resolution>,
) -> Result<Vec<Result<v1::ResolvedClaim, Failure>>, Failure> {
    let batch = request(v1::ResolveBatchRequest { resolutions });
    let results = answer(client.tasks.resolve_batch(batch)).await?.results;
    Ok(results.into_iter().map(resolved).collect())
}

pub(crate) fn enqueued(result: v1::EnqueueResult) -> Result<v1::EnqueueResponse, Failure> {
    match result.outcome {
        Some(v1::enqueue_result::Outcome::Enqueued(response)) => Ok(response),
        Some(v1::enqueue_result::Outcome::Error(error)) => Err(error.into()),
        None => Err(Failure::unanswered()),
    }
}

pub(crate) fn extended(result: v1::ExtendLeaseResult) -> Result<v1::ExtendLeaseResponse, Failure> {
    match result.outcome {
        Some(v1::extend_lease_result::Outcome::Extended(response)) => Ok(response),
        Some(v1::extend_lease_result::Outcome::Error(error)) => Err(error.into()),
        None => Err(Failure::unanswered()),
    }
}

fn resolved(result: v1::ResolveResult) -> Result<v1::ResolvedClaim, Failure> {
    match result.outcome {
        Some(v1::resolve_result::Outcome::Resolved(response)) => Ok(response),
        Some(v1::resolve_result::Outcome::Error(error)) => Err(error.into()),
        None => Err(Failure::unanswered()),
    }
}
