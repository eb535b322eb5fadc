//! `QueueService`: queue configuration.

use super::ANONYMOUS;
use crate::{
    convert,
    status::{Refusal, engine_status},
};
use rdq_engine::{Engine, ListQueuesRequest};
use rdq_proto::v1::{self, queue_service_server::QueueService};
use tonic::{Request, Response, Status};

const PAGE_SIZE: u32 = 50;
const PAGE_SIZE_MAX: u32 = 1_000;

type Reply<T> = Result<Response<T>, Status>;

/// Serves `QueueService` from an engine.
#[derive(Debug)]
pub(crate) struct Queues {
    engine: Engine,
}

impl Queues {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<Option<v1::Queue>, Status> {
        let queue = convert::name("name", name)?;
        let view = self.engine.pause_queue(queue, paused).await.map_err(engine_status)?;
        Ok(Some(convert::queue_view(view)))
    }
}

#[tonic::async_trait]
impl QueueService for Queues {
    async fn put_queue(
        &self,
        request: Request<v1::PutQueueRequest>,
    ) -> Reply<v1::PutQueueResponse> {
        let request = request.into_inner();
        let queue = convert::name("name", &request.name)?;
        let missing = || Refusal::invalid("config", "`config` is required");
        let config = convert::queue_config(request.config.ok_or_else(missing)?)?;
        let view = self.engine.put_queue(queue, config).await.map_err(engine_status)?;
        Ok(Response::new(v1::PutQueueResponse { queue: Some(convert::queue_view(view)) }))
    }

    async fn get_queue(
        &self,
        request: Request<v1::GetQueueRequest>,
    ) -> Reply<v1::GetQueueResponse> {
        let queue = convert::name("name", &request.into_inner().name)?;
        let view = self.engine.get_queue(queue).await.map_err(engine_status)?;
        Ok(Response::new(v1::GetQueueResponse { queue: Some(convert::queue_view(view)) }))
    }

    async fn list_queues(
        &self,
        request: Request<v1::ListQueuesRequest>,
    ) -> Reply<v1::ListQueuesResponse> {
        let request = request.into_inner();
        let page = self.engine.list_queues(ListQueuesRequest {
            page_size: convert::extent(request.page_size, PAGE_SIZE, PAGE_SIZE_MAX),
            page_token: request.page_token,
            subject: ANONYMOUS.to_owned(),
        });
        let page = page.await.map_err(engine_status)?;
        Ok(Response::new(v1::ListQueuesResponse {
            queues: page.queues.into_iter().map(convert::queue_view).collect(),
            next_page_token: page.next_page_token,
        }))
    }

    async fn delete_queue(
        &self,
        request: Request<v1::DeleteQueueRequest>,
    ) -> Reply<v1::DeleteQueueResponse> {
        let queue = convert::name("name", &request.into_inner().name)?;
        let existed = self.engine.delete_queue(queue).await.map_err(engine_status)?;
        Ok(Response::new(v1::DeleteQueueResponse { existed }))
    }

    async fn pause_queue(
        &self,
        request: Request<v1::PauseQueueRequest>,
    ) -> Reply<v1::PauseQueueResponse> {
        let queue = self.set_paused(&request.into_inner().name, true).await?;
        Ok(Response::new(v1::PauseQueueResponse { queue }))
    }

    async fn resume_queue(
        &self,
        request: Request<v1::ResumeQueueRequest>,
    ) -> Reply<v1::ResumeQueueResponse> {
        let queue = self.set_paused(&request.into_inner().name, false).await?;
        Ok(Response::new(v1::ResumeQueueResponse { queue }))
    }
}
