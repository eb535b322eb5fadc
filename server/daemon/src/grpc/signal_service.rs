//! `SignalService`: wakes.

use crate::{convert, status::engine_status};
use futures::{Stream, StreamExt as _};
use rdq_engine::{Engine, Heard};
use rdq_proto::v1::{self, signal_service_server::SignalService};
use std::pin::Pin;
use tonic::{Request, Response, Status};

type Reply<T> = Result<Response<T>, Status>;

/// Serves `SignalService` from an engine.
#[derive(Debug)]
pub(crate) struct Signals {
    engine: Engine,
}

impl Signals {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl SignalService for Signals {
    type ListenStream = Pin<Box<dyn Stream<Item = Result<v1::ListenResponse, Status>> + Send>>;

    async fn notify(&self, request: Request<v1::NotifyRequest>) -> Reply<v1::NotifyResponse> {
        let request = request.into_inner();
        let channel = convert::channel(&request.channel)?;
        self.engine.notify(channel, request.payload.len()).await.map_err(engine_status)?;
        Ok(Response::new(v1::NotifyResponse {}))
    }

    async fn listen(&self, request: Request<v1::ListenRequest>) -> Reply<Self::ListenStream> {
        let channel = convert::channel(&request.into_inner().channel)?;
        let hearing = self.engine.listen(channel.clone()).await.map_err(engine_status)?;
        let answers = hearing.map(move |heard| {
            let response = v1::ListenResponse::default();
            match heard.map_err(engine_status)? {
                Heard::Silence => Ok(response),
                Heard::News => {
                    Ok(v1::ListenResponse { channel: channel.as_str().to_owned(), ..response })
                }
                Heard::Reconnected => Ok(v1::ListenResponse { reconnected: true, ..response }),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
