//! `ClaimDue` and `WaitDue`: claims and hints going down.

use super::KeepAlive;
use crate::{
    convert,
    status::{Refusal, engine_status},
};
use futures::{Stream, StreamExt as _};
use rdq_engine::{Action, ClaimRequest, ClaimedTask, Engine, FollowRequest, ResolveRequest};
use rdq_proto::{time, v1};
use rdq_spi::DueHints;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tonic::Status;

const LIMIT: u32 = 1;
const LIMIT_MAX: u32 = 1_000;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn claim_request(request: &v1::ClaimDueRequest) -> Result<ClaimRequest, Refusal> {
    Ok(ClaimRequest {
        queues: convert::queues(&request.queues, 1)?,
        limit: convert::extent(request.limit, LIMIT, LIMIT_MAX),
        lease: convert::lease(request.lease.as_ref())?,
        worker_id: convert::worker_id(&request.worker_id)?,
    })
}

fn response(tasks: Vec<ClaimedTask>) -> Result<v1::ClaimDueResponse, Status> {
    Ok(v1::ClaimDueResponse { tasks: convert::claimed(tasks)? })
}

/// A subscription.
pub(super) fn follow(
    engine: &Engine,
    request: &v1::ClaimDueRequest,
) -> Result<Answers<v1::ClaimDueResponse>, Status> {
    let max_in_flight = convert::max_in_flight(request.max_in_flight)?;
    let request = FollowRequest { claim: claim_request(request)?, max_in_flight };
    let subscription = engine.follow(request).map_err(engine_status)?;
    Ok(Box::pin(subscription.map(|batch| batch.map_err(engine_status).and_then(response))))
}

/// One claim, delivered in one message.
pub(super) async fn once(
    engine: &Engine,
    request: &v1::ClaimDueRequest,
) -> Result<Answers<v1::ClaimDueResponse>, Status> {
    let tasks = engine.claim(claim_request(request)?).await.map_err(engine_status)?;
    Ok(Box::pin(Once { engine: engine.clone(), tasks: Some(tasks) }))
}

/// Claims on their way to the caller. If it goes away before they leave, they go back unspent.
struct Once {
    engine: Engine,
    tasks: Option<Vec<ClaimedTask>>,
}

impl Stream for Once {
    type Item = Result<v1::ClaimDueResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.tasks.take().map(response))
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        let releases: Vec<_> = self.tasks.take().into_iter().flatten().map(release).collect();
        if !releases.is_empty() {
            let engine = self.engine.clone();
            tokio::spawn(async move { engine.resolve_batch(releases).await });
        }
    }
}

fn release(claim: ClaimedTask) -> ResolveRequest {
    ResolveRequest {
        task_id: claim.task.id,
        token: claim.token,
        action: Action::Release { delay: Duration::ZERO },
        decided_fail: false,
    }
}

/// Hints, and an empty message where none came for long.
pub(super) fn hints(hints: DueHints, keep_alive: KeepAlive) -> Answers<v1::WaitDueResponse> {
    Box::pin(futures::stream::unfold(hints, move |mut hints| async move {
        let hint = match tokio::time::timeout(keep_alive.0, hints.next()).await {
            Ok(hint) => hint?,
            Err(_) => return Some((Ok(v1::WaitDueResponse::default()), hints)),
        };
        let due_in = (!hint.due_in.is_zero()).then(|| time::duration(hint.due_in));
        Some((Ok(v1::WaitDueResponse { queue: hint.queue.into(), due_in }), hints))
    }))
}
