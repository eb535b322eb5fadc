//! `OutboxService`: messages for elsewhere.

use crate::{convert, status::engine_status};
use rdq_engine::Engine;
use rdq_proto::{
    time,
    v1::{self, outbox_service_server::OutboxService},
};
use rdq_spi::{Resolved, TaskStatus};
use tonic::{Request, Response, Status};

type Reply<T> = Result<Response<T>, Status>;

/// Serves `OutboxService` from an engine.
#[derive(Debug)]
pub(crate) struct Outboxes {
    engine: Engine,
}

impl Outboxes {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

fn available_at(resolved: &Resolved) -> Option<prost_types::Timestamp> {
    resolved.next_attempt_at.map(|at| time::timestamp(at.millis()))
}

#[tonic::async_trait]
impl OutboxService for Outboxes {
    async fn enqueue(
        &self,
        request: Request<v1::OutboxServiceEnqueueRequest>,
    ) -> Reply<v1::OutboxServiceEnqueueResponse> {
        let message = convert::new_message(request.into_inner())?;
        let id = message.id.clone();
        let admission = self.engine.enqueue_message(message).await.map_err(engine_status)?;
        let created = admission.created;
        Ok(Response::new(v1::OutboxServiceEnqueueResponse { id: id.into(), created }))
    }

    async fn claim_batch(
        &self,
        request: Request<v1::ClaimBatchRequest>,
    ) -> Reply<v1::ClaimBatchResponse> {
        let request = convert::claim_messages(&request.into_inner())?;
        let claimed = self.engine.claim_messages(request).await.map_err(engine_status)?;
        let messages = claimed.into_iter().map(convert::message).collect::<Result<_, _>>()?;
        Ok(Response::new(v1::ClaimBatchResponse { messages }))
    }

    async fn mark_projected(
        &self,
        request: Request<v1::MarkProjectedRequest>,
    ) -> Reply<v1::MarkProjectedResponse> {
        let request = request.into_inner();
        let claim = convert::held_message(&request.id, &request.worker_id, request.generation)?;
        let replayed = self.engine.mark_projected(claim).await.map_err(engine_status)?;
        Ok(Response::new(v1::MarkProjectedResponse { replayed }))
    }

    async fn release_with_error(
        &self,
        request: Request<v1::ReleaseWithErrorRequest>,
    ) -> Reply<v1::ReleaseWithErrorResponse> {
        let (claim, attempt, delay) = convert::release_message(request.into_inner())?;
        let resolved = self.engine.release_message(claim, attempt, delay).await;
        let available_at = available_at(&resolved.map_err(engine_status)?);
        Ok(Response::new(v1::ReleaseWithErrorResponse { available_at }))
    }

    async fn fail(
        &self,
        request: Request<v1::OutboxServiceFailRequest>,
    ) -> Reply<v1::OutboxServiceFailResponse> {
        let request = request.into_inner();
        let claim = convert::held_message(&request.id, &request.worker_id, request.generation)?;
        let attempt = |delay| convert::failed_delivery(request.error, delay);
        let resolved = self.engine.fail_message(claim, attempt).await.map_err(engine_status)?;
        let dead = resolved.status == TaskStatus::Dead;
        let available_at = available_at(&resolved);
        Ok(Response::new(v1::OutboxServiceFailResponse { dead, available_at }))
    }

    async fn count_unprojected(
        &self,
        request: Request<v1::CountUnprojectedRequest>,
    ) -> Reply<v1::CountUnprojectedResponse> {
        let outbox = convert::optional_outbox(request.into_inner().outbox.as_ref())?;
        let counts = self.engine.count_unprojected(outbox).await.map_err(engine_status)?;
        let counts = counts.into_iter().map(convert::unprojected).collect();
        Ok(Response::new(v1::CountUnprojectedResponse { counts }))
    }
}
