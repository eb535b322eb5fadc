//! Outboxes: messages that are carried elsewhere, each at least once.

use crate::{Result, decode_payload, encode_payload, error::named, payload::CONTENT_TYPE};
use bytes::Bytes;
use prost::Message as _;
use rdq_engine::{ClaimMessagesRequest, Engine, NewMessage, OutboxName, new_id};
use rdq_proto::v1;
use rdq_spi::{AttemptError, AttemptReport, HeldClaim, TaskId, WorkerId};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Display, time::Duration};

/// An outbox.
#[derive(Debug, Clone)]
pub struct Outbox {
    pub(crate) engine: Engine,
    pub(crate) name: OutboxName,
}

/// A message to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id.
    pub id: String,
    /// What was enqueued.
    pub payload: Bytes,
    /// Which delivery this is; 1 is the first.
    pub attempt: u32,
}

impl Message {
    /// Reads the payload.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        decode_payload(&self.payload)
    }
}

impl Outbox {
    /// Enqueues a message, available after `delay`, and answers its id.
    pub async fn enqueue<T: Serialize + ?Sized>(
        &self,
        delay: Duration,
        payload: &T,
    ) -> Result<String> {
        let message = message(&self.name, delay, &encode_payload(payload)?);
        let id = message.id.to_string();
        self.engine.enqueue_message(message).await?;
        Ok(id)
    }

    /// Claims one message, delivers it and ends it; `false` if none was available. One whose delivery
    /// fails is available again after a backoff, and dead after the fifth failure. Nothing extends
    /// the claim of 60 seconds meanwhile: a slower delivery may be made twice.
    pub async fn run_once<E: Display>(
        &self,
        worker_id: &str,
        deliver: impl AsyncFnOnce(&Message) -> Result<(), E>,
    ) -> Result<bool> {
        let worker_id = named("worker_id", WorkerId::new(worker_id))?;
        let request = ClaimMessagesRequest {
            outbox: Some(self.name.clone()),
            limit: 1,
            lease: None,
            worker_id: worker_id.clone(),
        };
        let Some(claimed) = self.engine.claim_messages(request).await?.pop() else {
            return Ok(false);
        };
        let envelope = v1::Task::decode(claimed.task.envelope).unwrap_or_default();
        let message = Message {
            id: claimed.task.id.to_string(),
            payload: envelope.payload,
            attempt: claimed.task.attempt_count + 1,
        };
        let (task_id, generation) = (claimed.task.id, claimed.generation);
        let claim = HeldClaim { task_id, worker_id, generation };
        let ended = match deliver(&message).await {
            Ok(()) => self.engine.mark_projected(claim).await.map(drop),
            Err(error) => {
                let message = error.to_string();
                self.engine.fail_message(claim, move |_| failure(message)).await.map(drop)
            }
        };
        match ended {
            // The claim ended before the delivery did: whoever has the message now delivers it.
            Err(rdq_engine::EngineError::OutboxClaimMismatch { .. }) => Ok(true),
            ended => Ok(ended.map(|()| true)?),
        }
    }
}

fn failure(message: String) -> AttemptReport {
    let error = AttemptError {
        error_type: "rdq.OutboxDelivery".to_owned(),
        message,
        ..AttemptError::default()
    };
    AttemptReport { error: Some(error), extra: Bytes::new() }
}

/// A message to enqueue, its envelope as a client's would be.
pub(crate) fn message(outbox: &OutboxName, delay: Duration, payload: &Bytes) -> NewMessage {
    let id: TaskId = new_id();
    let envelope = v1::Task {
        id: id.to_string(),
        queue: outbox.queue().to_string(),
        handler_ref: OutboxName::handler().to_string(),
        payload: payload.clone(),
        payload_content_type: CONTENT_TYPE.to_owned(),
        ..v1::Task::default()
    };
    NewMessage {
        outbox: outbox.clone(),
        id,
        envelope: envelope.encode_to_vec().into(),
        payload_bytes: payload.len() as u64,
        delay,
    }
}
