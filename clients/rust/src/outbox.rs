//! A relay: carries the messages of an outbox elsewhere, one at a time, each at least once.

use crate::{
    Client, Error, HandlerError,
    outcome::boundary,
    retry::{self, Backoff},
};
use rdq_proto::{time, v1};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::Request;

/// What an outbox keeps of a delivery's error.
const ERROR_BYTES_MAX: usize = 4 << 10;
const GIVE_BACK_WITHIN: Duration = Duration::from_secs(1);

/// Carries the messages of an outbox elsewhere, oldest first.
///
/// No claim is extended: a delivery has to take less than the lease. One that takes longer may be
/// delivered twice, as after a crash: at least once is what an outbox gives.
#[derive(Debug, Clone)]
pub struct OutboxRelay {
    client: Client,
    outbox: Option<String>,
    lease: Option<Duration>,
}

impl Client {
    /// A relay of the messages of every outbox.
    pub fn outbox_relay(&self) -> OutboxRelay {
        OutboxRelay { client: self.clone(), outbox: None, lease: None }
    }
}

impl OutboxRelay {
    /// Only the messages of this outbox.
    #[must_use]
    pub fn outbox(mut self, outbox: impl Into<String>) -> Self {
        self.outbox = Some(outbox.into());
        self
    }

    /// How long a message is claimed; the server's default of 60 s if not set.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// Claims a message, delivers it and marks it as projected. Says whether there was one.
    ///
    /// If the delivery fails, the message comes again after a while or is a dead letter, by the
    /// outboxes' policy, with the error's type and text; that is no error here. Nor is it one if the
    /// claim ended meanwhile: the message is another's then. Dropping this future breaks the
    /// delivery off: the message is given back, due at once.
    pub async fn run_once<F, E>(
        &self,
        worker_id: &str,
        deliver: impl FnOnce(v1::OutboxMessage) -> F,
    ) -> Result<bool, Error>
    where
        F: Future<Output = Result<(), E>>,
        E: Into<HandlerError>,
    {
        let Some(message) = self.claim(worker_id).await? else { return Ok(false) };
        self.deliver(message, deliver).await?;
        Ok(true)
    }

    /// Delivers message after message until `shutdown` is over; then the delivery under way goes on
    /// to its end and is answered, and nothing more is claimed. While there is no message it asks
    /// again with backoff, up to 2 s; after an error that a repetition helps, as a worker connects
    /// again. Any other error ends it.
    pub async fn run_until<D, F, E>(
        &self,
        worker_id: &str,
        shutdown: impl Future<Output = ()>,
        mut deliver: D,
    ) -> Result<(), Error>
    where
        D: FnMut(v1::OutboxMessage) -> F,
        F: Future<Output = Result<(), E>>,
        E: Into<HandlerError>,
    {
        let stop = CancellationToken::new();
        let running = async {
            let mut idle = Backoff::new(retry::IDLE);
            let mut failing = Backoff::new(retry::STREAMS);
            while !stop.is_cancelled() {
                let claimed = tokio::select! {
                    claimed = self.claim(worker_id) => claimed,
                    () = stop.cancelled() => break,
                };
                let done = match claimed {
                    Ok(Some(message)) => self.deliver(message, &mut deliver).await.map(|()| true),
                    Ok(None) => Ok(false),
                    Err(error) => Err(error),
                };
                let wait = match done {
                    Ok(true) => {
                        idle.reset();
                        failing.reset();
                        continue;
                    }
                    Ok(false) => {
                        failing.reset();
                        idle.next()
                    }
                    Err(error) if !error.is_retryable() => return Err(error),
                    Err(error) => {
                        let wait = failing.next_after(&error);
                        tracing::warn!(%error, ?wait, "the outbox is out of reach, once more");
                        wait
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = stop.cancelled() => {}
                }
            }
            Ok(())
        };
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = shutdown => stop.cancel(),
        }
        running.await
    }

    async fn claim(&self, worker_id: &str) -> Result<Option<v1::OutboxMessage>, Error> {
        let message = v1::ClaimBatchRequest {
            outbox: self.outbox.clone(),
            limit: Some(1),
            lease: self.lease.map(time::duration),
            worker_id: worker_id.to_owned(),
        };
        let claimed = self
            .client
            .call(|mut rpc, ask| {
                let message = message.clone();
                async move { rpc.outboxes.claim_batch(ask.request(message)).await }
            })
            .await?;
        Ok(claimed.messages.into_iter().next())
    }

    async fn deliver<F, E>(
        &self,
        message: v1::OutboxMessage,
        deliver: impl FnOnce(v1::OutboxMessage) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), E>>,
        E: Into<HandlerError>,
    {
        let mut claim = Claimed {
            client: self.client.clone(),
            id: message.id.clone(),
            worker_id: message.worker_id.clone(),
            generation: message.generation,
            is_delivered: false,
        };
        let delivered = deliver(message).await;
        claim.is_delivered = true;
        let answered = match delivered {
            Ok(()) => claim.mark_projected().await,
            Err(error) => claim.fail(&error.into()).await,
        };
        match answered {
            Err(error @ (Error::OutboxClaimMismatch(_) | Error::OutboxMissing(_))) => {
                tracing::warn!(%error, id = claim.id, "a claim ended before its delivery");
                Ok(())
            }
            answered => answered,
        }
    }
}

/// A message under a claim: given back if it is dropped before its delivery ended.
struct Claimed {
    client: Client,
    id: String,
    worker_id: String,
    generation: i64,
    is_delivered: bool,
}

impl Claimed {
    async fn mark_projected(&self) -> Result<(), Error> {
        let marking = self.client.call(|mut rpc, ask| {
            let message = v1::MarkProjectedRequest {
                id: self.id.clone(),
                worker_id: self.worker_id.clone(),
                generation: self.generation,
            };
            async move { rpc.outboxes.mark_projected(ask.request(message)).await }
        });
        marking.await.map(drop)
    }

    async fn fail(&self, error: &HandlerError) -> Result<(), Error> {
        let mut text = match error.cause() {
            Some(cause) => format!("{}: {}", cause.error_type(), cause.message()),
            None => error.to_string(),
        };
        text.truncate(boundary(&text, ERROR_BYTES_MAX));
        let failing = self.client.call(|mut rpc, ask| {
            let message = v1::OutboxServiceFailRequest {
                id: self.id.clone(),
                worker_id: self.worker_id.clone(),
                generation: self.generation,
                error: text.clone(),
            };
            async move { rpc.outboxes.fail(ask.request(message)).await }
        });
        failing.await.map(drop)
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_delivered {
            return;
        }
        let mut rpc = self.client.rpc();
        let mut request = Request::new(v1::ReleaseWithErrorRequest {
            id: self.id.clone(),
            worker_id: self.worker_id.clone(),
            generation: self.generation,
            error: "the delivery was broken off".to_owned(),
            delay: None,
        });
        request.set_timeout(GIVE_BACK_WITHIN);
        runtime.spawn(async move {
            if let Err(status) = rpc.outboxes.release_with_error(request).await {
                tracing::warn!(%status, "a message was not given back");
            }
        });
    }
}
