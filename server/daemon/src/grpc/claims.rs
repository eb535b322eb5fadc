//! `ClaimDue` and `WaitDue`: claims and hints going down.

use super::KeepAlive;
use crate::{
    convert,
    status::{Refusal, engine_status},
};
use futures::{Stream, StreamExt as _};
use rdq_engine::{ClaimRequest, ClaimedTask, Engine, FollowRequest};
use rdq_proto::{time, v1};
use rdq_spi::DueHints;
use std::{
    pin::Pin,
    task::{Context, Poll},
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
        self.engine.give_back(self.tasks.take().unwrap_or_default());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::task_service::Tasks;
    use rdq_engine::EngineOptions;
    use rdq_proto::v1::task_service_server::TaskService as _;
    use rdq_spi::QueueName;

    #[tokio::test]
    async fn a_drain_waits_until_claims_that_never_left_are_back() {
        let folder = tempfile::tempdir().expect("a directory");
        let url = format!("sqlite:{}", folder.path().join("rdq.db").display());
        let storage = rdq_store::open(&url).await.expect("it opens");
        let engine = Engine::start(storage, EngineOptions::default()).await.expect("it starts");
        let task = v1::Task { queue: "q".into(), handler_ref: "h".into(), ..v1::Task::default() };
        let task = prost::Message::encode_to_vec(&task).into();
        let tasks = Tasks::new(engine.clone(), KeepAlive(std::time::Duration::from_secs(1)));
        let request = tonic::Request::new(v1::EnqueueRequest { task });
        tasks.enqueue(request).await.expect("admitted");
        let request = v1::ClaimDueRequest {
            queues: vec!["q".into()],
            worker_id: "w".into(),
            ..v1::ClaimDueRequest::default()
        };

        drop(once(&engine, &request).await.expect("claimed"));
        engine.drain().await;

        let storage = rdq_store::open(&url).await.expect("it opens");
        let stats = storage.stats(QueueName::stored("q")).await.expect("stats");
        assert_eq!((stats.ready, stats.in_flight), (1, 0));
    }
}
