//! The stream that claims come by: opened, read, and given up when it is silent. What is in its
//! messages is for others.

use super::Settings;
use crate::{
    Error,
    client::{Rpc, Try, now},
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
/// The server refuses more in one request.
const IN_FLIGHT_MAX: usize = 10_000;

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
    /// Tasks that the server may still send.
    pub(super) credits: usize,
    _reader: AbortOnDropHandle<()>,
}

impl Link {
    /// Opens `Work`, with these credits.
    pub(super) fn work(rpc: Rpc, settings: &Settings, credits: usize) -> Self {
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
        let open = async move {
            let mut rpc = rpc;
            rpc.tasks.work(ReceiverStream::new(requests)).await
        };
        Self::open(Some(out), credits.min(IN_FLIGHT_MAX), open, |message| message)
    }

    /// Opens `ClaimDue`, which only comes down.
    pub(super) fn claim_due(rpc: Rpc, settings: &Settings) -> Self {
        let concurrency = settings.concurrency.min(IN_FLIGHT_MAX);
        let wanted = i32::try_from(concurrency).unwrap_or(i32::MAX);
        let request = v1::ClaimDueRequest {
            queues: settings.queues.clone(),
            worker_id: settings.worker_id.clone(),
            lease: settings.lease.map(time::duration),
            limit: Some(wanted),
            follow: true,
            max_in_flight: Some(wanted),
        };
        let open = async move {
            let mut rpc = rpc;
            rpc.tasks.claim_due(Request::new(request)).await
        };
        Self::open(None, 0, open, |message: v1::ClaimDueResponse| v1::WorkResponse {
            tasks: message.tasks,
            ..v1::WorkResponse::default()
        })
    }

    fn open<M: Send + 'static>(
        out: Option<mpsc::Sender<v1::WorkRequest>>,
        credits: usize,
        open: impl Future<Output = Result<tonic::Response<Streaming<M>>, Status>> + Send + 'static,
        message: fn(M) -> v1::WorkResponse,
    ) -> Self {
        let (events, inbox) = mpsc::channel(IN_MAX);
        let reader = async move {
            let end = read(open, message, &events).await;
            let _ = events.send(Event::Ended(end)).await;
        };
        let reader = AbortOnDropHandle::new(tokio::spawn(reader));
        Self { out, events: inbox, is_up: false, credits, _reader: reader }
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
    let credits = i32::try_from(credits.min(IN_FLIGHT_MAX)).unwrap_or(0);
    (credits > 0).then_some(credits)
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
