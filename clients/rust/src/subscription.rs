//! A consumer that reads a stream of events: handles them one by one, saves how far it came, and
//! subscribes again when its stream ends.

use crate::{
    Client, Error,
    client::{Try, now},
    retry::{self, Backoff},
};
use rdq_proto::v1;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};

/// The server sends something every 15 s.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// How old the last save may be while events of one message are handled.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// The save of a subscription that stops takes no longer.
const LAST_SAVE_WITHIN: Duration = Duration::from_secs(5);

/// A consumer's reading of a stream of events.
///
/// The handler is called for one event after the other, in order, and the offset is saved after
/// those that succeeded: at the end of each message of the server, and each second within one. So
/// every event is handled at least once; after a crash, those since the last save come again. It
/// subscribes again after every end of its stream, on a connection of its own (unless the client's
/// channel is the caller's).
#[derive(Debug, Clone)]
#[must_use = "nothing is read before `run_until`"]
pub struct Subscription {
    client: Client,
    request: v1::SubscribeRequest,
}

/// Why a [`Subscription`] ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum SubscriptionError<E> {
    /// The handler failed. What succeeded before is saved, unless the save failed too; the failed
    /// event is not.
    #[error("the handler of an event failed")]
    Handler(#[source] E),
    /// The service refused, or the last save failed.
    #[error(transparent)]
    Service(#[from] Error),
}

impl Client {
    /// A subscription of a consumer to a stream, to be run.
    pub fn subscription(
        &self,
        stream: impl Into<String>,
        consumer: impl Into<String>,
    ) -> Subscription {
        let request = v1::SubscribeRequest {
            stream: stream.into(),
            consumer: consumer.into(),
            ..v1::SubscribeRequest::default()
        };
        Subscription { client: self.clone(), request }
    }
}

impl Subscription {
    /// How many events come in one message at most, up to 1,000; the server's default if not set.
    pub fn events_per_message(mut self, events: i32) -> Self {
        self.request.limit = Some(events);
        self
    }

    /// Reads and handles until `shutdown` is over, then lets the handler of the current event end,
    /// saves within 5 s, and returns. Dropping this future drops the handler with it, and saves
    /// nothing more.
    ///
    /// An error of the handler ends it, and is not retried here: the order forbids going on without
    /// that event, and only the application knows whether trying again helps. Run it again to begin
    /// with that event.
    pub async fn run_until<H, F, E>(
        self,
        shutdown: impl Future<Output = ()>,
        handler: H,
    ) -> Result<(), SubscriptionError<E>>
    where
        H: FnMut(v1::StreamEvent) -> F,
        F: Future<Output = Result<(), E>>,
    {
        let stop = CancellationToken::new();
        let reader = Reader {
            client: self.client.apart(),
            request: self.request,
            handler,
            stop: stop.clone(),
            backoff: Backoff::new(retry::STREAMS),
            handled: 0,
            saved: 0,
            saved_at: now(),
        };
        // On the heap: it is large, and would make whatever awaits it as large.
        let mut reading = Box::pin(reader.run());
        tokio::select! {
            ended = &mut reading => return ended,
            () = shutdown => stop.cancel(),
        }
        reading.await
    }
}

struct Reader<H> {
    client: Client,
    request: v1::SubscribeRequest,
    handler: H,
    stop: CancellationToken,
    backoff: Backoff,
    /// Offsets.
    handled: i64,
    saved: i64,
    saved_at: Instant,
}

impl<H, F, E> Reader<H>
where
    H: FnMut(v1::StreamEvent) -> F,
    F: Future<Output = Result<(), E>>,
{
    async fn run(mut self) -> Result<(), SubscriptionError<E>> {
        while !self.stop.is_cancelled() {
            match self.read().await {
                Ok(()) => break,
                Err(SubscriptionError::Handler(failed)) => {
                    if let Err(error) = self.save().await {
                        tracing::warn!(%error, "what was handled is not saved");
                    }
                    return Err(SubscriptionError::Handler(failed));
                }
                Err(SubscriptionError::Service(error)) if !error.is_retryable() => {
                    return Err(error.into());
                }
                Err(SubscriptionError::Service(error)) => {
                    let wait = self.backoff.next_after(&error);
                    let stream = self.request.stream.as_str();
                    tracing::warn!(%error, ?wait, stream, "no stream of events, once more");
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.stop.cancelled() => {}
                    }
                }
            }
        }
        Ok(self.save().await?)
    }

    /// Reads one stream; returns without an error once it is to stop.
    async fn read(&mut self) -> Result<(), SubscriptionError<E>> {
        // What an earlier save failed to say: the server goes on from what is saved.
        self.save().await?;
        let mut rpc = self.client.rpc();
        let opening = rpc.streams.subscribe(Request::new(self.request.clone()));
        let mut stream = tokio::select! {
            opened = Try::ONLY.answer(opening) => opened?.into_inner(),
            () = self.stop.cancelled() => return Ok(()),
        };
        loop {
            let message = tokio::select! {
                message = tokio::time::timeout(SILENCE_MAX, stream.message()) => message,
                () = self.stop.cancelled() => return Ok(()),
            };
            let Ok(message) = message else { return Err(Error::timed_out().into()) };
            let Some(message) = message.map_err(Error::from)? else {
                let reason = v1::ErrorReason::Closed;
                return Err(Error::local(reason, Code::Unavailable, "the stream ended").into());
            };
            self.backoff.reset();
            for event in message.events {
                if self.stop.is_cancelled() {
                    return Ok(());
                }
                self.handle(event).await?;
            }
            self.save().await?;
        }
    }

    async fn handle(&mut self, event: v1::StreamEvent) -> Result<(), SubscriptionError<E>> {
        let offset = event.offset;
        if offset <= self.handled {
            return Ok(());
        }
        (self.handler)(event).await.map_err(SubscriptionError::Handler)?;
        self.handled = offset;
        if self.saved_at.elapsed() >= SAVE_EVERY {
            self.save().await?;
        }
        Ok(())
    }

    /// Saves what is handled, if it is not saved: within 5 s once it is to stop.
    async fn save(&mut self) -> Result<(), Error> {
        if self.handled <= self.saved {
            return Ok(());
        }
        let message = v1::SaveOffsetRequest {
            stream: self.request.stream.clone(),
            consumer: self.request.consumer.clone(),
            offset: self.handled,
        };
        let saving = self.client.call(|mut rpc, ask| {
            let message = message.clone();
            async move { rpc.streams.save_offset(ask.request(message)).await }
        });
        let too_late = async {
            self.stop.cancelled().await;
            tokio::time::sleep(LAST_SAVE_WITHIN).await;
        };
        tokio::select! {
            saved = saving => drop(saved?),
            () = too_late => return Err(Error::timed_out()),
        }
        self.saved = self.handled;
        self.saved_at = now();
        Ok(())
    }
}
