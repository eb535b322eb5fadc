//! Claims and cancellations, which the wire has one by one, and what answers say of each item.

use crate::{
    client::{Client, answer, in_time, request, to_its_end},
    convert,
    errors::{Failure, Operation},
    pages::fitting,
};
use futures::{StreamExt as _, stream};
use rdq_proto::v1;
use rdq_spi::{Cancelled, Claim, ClaimParams, Claimed, Result, TaskId};
use std::{collections::HashSet, time::Duration};

/// Single calls under way at once for one batch that the wire has no batch for.
const CALLS_AT_ONCE: usize = 32;

/// An answer this large may have been cut for its size: more may be due.
const LARGE_ANSWER_BYTES: usize = 1 << 20;

/// Serves claims by a call each, many at once, each with its own answer.
pub(crate) async fn claim_all(client: &Client, claims: &[ClaimParams]) -> Vec<Result<Claimed>> {
    let calls = claims.iter().map(|params| {
        let (limit, bytes_max) = (params.limit as usize, params.bytes_max);
        let call = claim(client.clone(), convert::claim_request(params), limit, bytes_max);
        // Not before its turn.
        async { to_its_end(call).await }
    });
    let calls: Vec<_> = calls.collect();
    stream::iter(calls).buffered(CALLS_AT_ONCE).collect().await
}

async fn claim(
    mut client: Client,
    asked: v1::ClaimDueRequest,
    limit: usize,
    bytes_max: usize,
) -> Result<Claimed> {
    let claim_due = Operation::changing("claim_due");
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

    let (fitting, bytes) = fitting(claims.iter().map(|claim| &claim.task), bytes_max);
    let is_full = claims.len() >= limit || bytes >= LARGE_ANSWER_BYTES;
    let surplus: Vec<Claim> = claims.split_off(fitting);
    let more = is_full || !surplus.is_empty();
    if !surplus.is_empty() {
        // What cannot be given back now comes back when its lease ends.
        let releases = surplus.iter().map(convert::release).collect();
        let _ = resolve_batch(client, releases).await;
    }
    Ok(Claimed { claims, next_due_in: more.then_some(Duration::ZERO) })
}

/// Cancels each task by a call of its own, many at once. A repeated task waits for its first call,
/// so that the answers are in the order of the batch.
pub(crate) async fn cancel_all(client: &Client, tasks: Vec<TaskId>) -> Vec<Result<Cancelled>> {
    let mut answers = Vec::with_capacity(tasks.len());
    let mut left: Vec<_> = tasks.into_iter().enumerate().collect();
    while !left.is_empty() {
        let mut seen = HashSet::new();
        let (now, later): (Vec<_>, _) =
            left.into_iter().partition(|(_, task)| seen.insert(task.clone()));
        let calls = now.into_iter().map(|(index, task)| {
            let call = cancel(client.clone(), task);
            async move { (index, call.await) }
        });
        // Made before they are polled: a stream of closures would borrow too long.
        let calls: Vec<_> = calls.collect();
        answers
            .extend(stream::iter(calls).buffer_unordered(CALLS_AT_ONCE).collect::<Vec<_>>().await);
        left = later;
    }
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn cancel(mut client: Client, task: TaskId) -> Result<Cancelled> {
    let cancel = Operation::changing("cancel");
    let asked = request(v1::CancelRequest { id: task.as_str().to_owned() });
    let response = answer(async move { client.tasks.cancel(asked).await }).await;
    let response = response.map_err(|failure| failure.error(cancel, Some(&task)))?;
    convert::cancelled(response).map_err(|broken| cancel.broken(broken))
}

/// Ends claims, each with its own answer.
pub(crate) async fn resolve_batch(
    mut client: Client,
    resolutions: Vec<v1::Resolution>,
) -> Result<Vec<Result<v1::ResolvedClaim, Failure>>, Failure> {
    let batch = request(v1::ResolveBatchRequest { resolutions });
    let results = answer(async move { client.tasks.resolve_batch(batch).await }).await?.results;
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
