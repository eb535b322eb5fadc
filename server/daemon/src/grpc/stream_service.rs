//! `StreamService`: events, and what consumers have read.

use crate::{convert, status::engine_status};
use futures::{Stream, StreamExt as _};
use rdq_engine::{Engine, SubscribeRequest};
use rdq_proto::v1::{self, stream_service_server::StreamService};
use std::pin::Pin;
use tonic::{Request, Response, Status};

type Reply<T> = Result<Response<T>, Status>;

/// Serves `StreamService` from an engine.
#[derive(Debug)]
pub(crate) struct Streams {
    engine: Engine,
}

impl Streams {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl StreamService for Streams {
    type SubscribeStream =
        Pin<Box<dyn Stream<Item = Result<v1::SubscribeResponse, Status>> + Send>>;

    async fn publish(&self, request: Request<v1::PublishRequest>) -> Reply<v1::PublishResponse> {
        let event = convert::new_event(request.into_inner())?;
        let offset = self.engine.publish(event).await.map_err(engine_status)?;
        Ok(Response::new(v1::PublishResponse { offset }))
    }

    async fn read(&self, request: Request<v1::ReadRequest>) -> Reply<v1::ReadResponse> {
        let (stream, from, limit) = convert::read(request.into_inner())?;
        let events = self.engine.read_stream(stream.clone(), from, limit).await;
        let events = convert::events(&stream, events.map_err(engine_status)?);
        Ok(Response::new(v1::ReadResponse { events }))
    }

    async fn subscribe(
        &self,
        request: Request<v1::SubscribeRequest>,
    ) -> Reply<Self::SubscribeStream> {
        let request = request.into_inner();
        let stream = convert::stream(&request.stream)?;
        let events = self.engine.subscribe(SubscribeRequest {
            stream: stream.clone(),
            consumer: convert::consumer(&request.consumer)?,
            limit: convert::subscribed_at_once(request.limit)?,
        });
        let events = events.await.map_err(engine_status)?;
        let answers = events.map(move |events| {
            let events = convert::events(&stream, events.map_err(engine_status)?);
            Ok(v1::SubscribeResponse { events })
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn save_offset(
        &self,
        request: Request<v1::SaveOffsetRequest>,
    ) -> Reply<v1::SaveOffsetResponse> {
        let offset = convert::save_offset(&request.into_inner())?;
        let offset = self.engine.save_offset(offset).await.map_err(engine_status)?;
        Ok(Response::new(v1::SaveOffsetResponse { offset }))
    }

    async fn get_offset(
        &self,
        request: Request<v1::GetOffsetRequest>,
    ) -> Reply<v1::GetOffsetResponse> {
        let request = request.into_inner();
        let stream = convert::stream(&request.stream)?;
        let consumer = convert::consumer(&request.consumer)?;
        let offset = self.engine.saved_offset(stream, consumer).await.map_err(engine_status)?;
        Ok(Response::new(v1::GetOffsetResponse { offset }))
    }

    async fn trim(&self, request: Request<v1::TrimRequest>) -> Reply<v1::TrimResponse> {
        let request = request.into_inner();
        let stream = convert::stream(&request.stream)?;
        let count = self.engine.trim(stream, request.horizon).await.map_err(engine_status)?;
        Ok(Response::new(v1::TrimResponse { count: convert::count(count) }))
    }
}
