//! The stream that claims come by: opened, read, and given up when it is silent. What is in its
//! messages is for others.

use super::Settings;
use crate::{
    Error,
    client::{Rpc, Try, check_version, now},
};
use rdq_proto::{time, v1};
use std::time::Duration;
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Request, Status, Streaming};

/// The server sends something every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// Messages on their way out: few, so that what follows gathers into large ones.
const OUT_MAX: usize = 2;
const IN_MAX: usize = 8;

/// What happens on a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// Something came, and when.
    Message(v1::WorkResponse, Instant),
    /// It is over; there is always an error, if only because a stream should not end.
    Ended(Error),
}

/// A stream that is open, or about to be. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Link {
    /// Closed when nothing more is to be claimed; none of a stream that only comes down.
    out: Option<mpsc::Sender<v1::WorkRequest>>,
    events: mpsc::Receiver<Event>,
    /// The server has answered on it.
    pub(super) is_up: bool,
    /// The server drains: it sends no more tasks on it, and ends it soon.
    pub(super) is_draining: bool,
    /// Tasks that the server may still send.
    pub(super) credits: usize,
    _reader: AbortOnDropHandle<()>,
}

impl Link {
    /// Opens `Work`, with these credits.
    pub(super) fn work(rpc: Rpc, settings: &Settings, credits: usize, asks: bool) -> Self {
        let (out, requests) = mpsc::channel(OUT_MAX);
        let first = v1::WorkRequest {
            start: Some(v1::WorkStart {
                queues: settings.queues.clone(),
                worker_id: settings.worker_id.clone(),
                lease: settings.lease.map(time::duration),
            }),
            credits: grant(credits),
            ..v1::WorkRequest::default()
        };
        // The channel is new, and has room.
        let _ = out.try_send(first);
        let asked = asks.then(|| rpc.clone());
        let open = async move {
            let mut rpc = rpc;
            rpc.tasks.work(ReceiverStream::new(requests)).await
        };
        Self::open(Some(out), credits, asked, open, |message| message)
    }

    /// Opens `ClaimDue`, which only comes down.
    pub(super) fn claim_due(rpc: Rpc, settings: &Settings, asks: bool) -> Self {
        let wanted = i32::try_from(settings.concurrency).unwrap_or(i32::MAX);
        let request = v1::ClaimDueRequest {
            queues: settings.queues.clone(),
            worker_id: settings.worker_id.clone(),
            lease: settings.lease.map(time::duration),
            limit: Some(wanted),
            follow: true,
            max_in_flight: Some(wanted),
        };
        let asked = asks.then(|| rpc.clone());
        let open = async move {
            let mut rpc = rpc;
            rpc.tasks.claim_due(Request::new(request)).await
        };
        Self::open(None, 0, asked, open, |message: v1::ClaimDueResponse| v1::WorkResponse {
            tasks: message.tasks,
            ..v1::WorkResponse::default()
        })
    }

    fn open<M: Send + 'static>(
        out: Option<mpsc::Sender<v1::WorkRequest>>,
        credits: usize,
        asked: Option<Rpc>,
        open: impl Future<Output = Result<tonic::Response<Streaming<M>>, Status>> + Send + 'static,
        message: fn(M) -> v1::WorkResponse,
    ) -> Self {
        let (events, inbox) = mpsc::channel(IN_MAX);
        let reader = async move {
            let end = match ask_contract(asked).await {
                Ok(()) => read(open, message, &events).await,
                Err(error) => error,
            };
            let _ = events.send(Event::Ended(end)).await;
        };
        let reader = AbortOnDropHandle::new(tokio::spawn(reader));
        Self { out, events: inbox, is_up: false, is_draining: false, credits, _reader: reader }
    }

    pub(super) async fn next(&mut self) -> Event {
        self.events.recv().await.unwrap_or_else(|| Event::Ended(ended()))
    }

    /// What has come already.
    pub(super) fn try_next(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    /// The way out, if there is one and the server answers on it.
    pub(super) fn out(&self) -> Option<&mpsc::Sender<v1::WorkRequest>> {
        self.out.as_ref().filter(|_| self.is_up)
    }

    /// Sends no more; so the server claims no more, answers what it has, and ends the stream.
    /// False if the stream has no such way.
    pub(super) fn close(&mut self) -> bool {
        let was_up = self.out().is_some();
        self.out = None;
        self.credits = 0;
        was_up
    }
}

/// Credits as the contract has them: at least 1, or none at all.
pub(super) fn grant(credits: usize) -> Option<i32> {
    let credits = i32::try_from(credits).unwrap_or(0);
    (credits > 0).then_some(credits)
}

/// Asks which contract the server speaks, where that is to be asked; an error says why no stream
/// should be opened.
async fn ask_contract(asked: Option<Rpc>) -> Result<(), Error> {
    let Some(mut rpc) = asked else { return Ok(()) };
    let request = Try::ONLY.request(v1::GetCapabilitiesRequest {});
    match Try::ONLY.answer(rpc.tasks.get_capabilities(request)).await {
        Ok(answer) => check_version(&answer.into_inner().contract_version),
        Err(error) if error.is_retryable() => Err(error),
        // Something on the way that does not let this call through may well let the stream.
        Err(_) => Ok(()),
    }
}

async fn read<M>(
    open: impl Future<Output = Result<tonic::Response<Streaming<M>>, Status>>,
    message: fn(M) -> v1::WorkResponse,
    events: &mpsc::Sender<Event>,
) -> Error {
    // The first message of the server comes at once, so opening has no longer than any call.
    let mut stream = match Try::ONLY.answer(open).await {
        Ok(stream) => stream.into_inner(),
        Err(error) => return error,
    };
    loop {
        match tokio::time::timeout(SILENCE_MAX, stream.message()).await {
            Ok(Ok(Some(next))) => {
                // Nobody listens any more: so nobody asks why.
                if events.send(Event::Message(message(next), now())).await.is_err() {
                    return ended();
                }
            }
            Ok(Ok(None)) => return ended(),
            Ok(Err(status)) => return status.into(),
            Err(_) => return Error::timed_out(),
        }
    }
}

fn ended() -> Error {
    Error::local(v1::ErrorReason::Closed, Code::Unavailable, "the stream ended")
}
