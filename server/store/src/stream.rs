//! Streams: publish, read, and read on.

use crate::{Result, StoreError, decode_payload, encode_payload, error::named};
use bytes::Bytes;
use futures::StreamExt as _;
use rdq_engine::{Engine, Events, SubscribeRequest};
use rdq_spi::{ConsumerName, EventKey, NewEvent, ReadFrom, SaveOffset, StreamName, Timestamp};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::VecDeque;

/// Events of one message of a subscription.
const AT_ONCE: u32 = 100;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// Its place in the stream. Only this orders.
    pub offset: i64,
    /// The stream.
    pub stream: String,
    /// Carried, not interpreted.
    pub key: Option<String>,
    /// What was published.
    pub payload: Bytes,
    /// When it was published.
    pub created_at: Timestamp,
}

impl StreamEvent {
    /// Reads the payload.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        decode_payload(&self.payload)
    }
}

pub(crate) fn events(stream: &StreamName, events: Vec<rdq_spi::StreamEvent>) -> Vec<StreamEvent> {
    let event = |event: rdq_spi::StreamEvent| StreamEvent {
        offset: event.offset,
        stream: stream.to_string(),
        key: event.key.map(|key| key.as_str().to_owned()),
        payload: event.payload,
        created_at: event.created_at,
    };
    events.into_iter().map(event).collect()
}

/// An event to publish.
pub(crate) fn event<T: Serialize + ?Sized>(
    stream: &StreamName,
    key: Option<&str>,
    payload: &T,
) -> Result<NewEvent> {
    let key = key.map(|key| named("key", EventKey::new(key))).transpose()?;
    Ok(NewEvent { stream: stream.clone(), key, payload: encode_payload(payload)? })
}

/// At most so many; at or below 0 none.
pub(crate) fn extent(limit: i64) -> u32 {
    u32::try_from(limit.max(0)).unwrap_or(u32::MAX)
}

/// A stream.
#[derive(Debug, Clone)]
pub struct StreamHandle {
    pub(crate) engine: Engine,
    pub(crate) name: StreamName,
}

impl StreamHandle {
    /// Appends an event, and answers its offset.
    pub async fn publish<T: Serialize + ?Sized>(&self, payload: &T) -> Result<i64> {
        Ok(self.engine.publish(event(&self.name, None, payload)?).await?)
    }

    /// The same with a key, which must not be empty.
    pub async fn publish_with_key<T: Serialize + ?Sized>(
        &self,
        key: &str,
        payload: &T,
    ) -> Result<i64> {
        Ok(self.engine.publish(event(&self.name, Some(key), payload)?).await?)
    }

    /// Reads events after an offset, up to 1,000; none if `limit` is 0 or below.
    pub async fn read_since(&self, offset: i64, limit: i64) -> Result<Vec<StreamEvent>> {
        self.read(ReadFrom::Offset(offset), limit).await
    }

    /// Reads events after what the consumer saved.
    pub async fn read_from_consumer(&self, consumer: &str, limit: i64) -> Result<Vec<StreamEvent>> {
        let consumer = named("consumer", ConsumerName::new(consumer))?;
        self.read(ReadFrom::Consumer(consumer), limit).await
    }

    async fn read(&self, from: ReadFrom, limit: i64) -> Result<Vec<StreamEvent>> {
        let read = self.engine.read_stream(self.name.clone(), from, extent(limit)).await?;
        Ok(events(&self.name, read))
    }

    /// Saves what the consumer has read up to. One below what is saved changes nothing.
    pub async fn save_offset(&self, consumer: &str, offset: i64) -> Result<()> {
        let consumer = named("consumer", ConsumerName::new(consumer))?;
        let save = SaveOffset { stream: self.name.clone(), consumer, offset };
        self.engine.save_offset(save).await?;
        Ok(())
    }

    /// What the consumer saved; 0 if nothing.
    pub async fn get_offset(&self, consumer: &str) -> Result<i64> {
        let consumer = named("consumer", ConsumerName::new(consumer))?;
        Ok(self.engine.saved_offset(self.name.clone(), consumer).await?)
    }

    /// Removes the events at or below the horizon, and answers how many.
    pub async fn trim_to(&self, horizon: i64) -> Result<u64> {
        Ok(self.engine.trim(self.name.clone(), horizon).await?)
    }

    /// Reads on as events are published, from what the consumer saved.
    pub async fn subscribe(&self, consumer: &str) -> Result<EventReceiver> {
        let name = named("consumer", ConsumerName::new(consumer))?;
        let stream = self.name.clone();
        let request = SubscribeRequest { stream, consumer: name.clone(), limit: AT_ONCE };
        let source = self.engine.subscribe(request).await?;
        Ok(EventReceiver {
            handle: self.clone(),
            consumer: name,
            source,
            ready: VecDeque::new(),
            last: None,
        })
    }
}

/// The events of a subscription. It saves nothing by itself.
pub struct EventReceiver {
    handle: StreamHandle,
    consumer: ConsumerName,
    source: Events,
    ready: VecDeque<StreamEvent>,
    last: Option<i64>,
}

impl std::fmt::Debug for EventReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventReceiver").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}

impl EventReceiver {
    /// The next event. `None` once the store is closed; after an error, subscribe again. Nothing is
    /// lost if the future is dropped.
    pub async fn recv(&mut self) -> Option<Result<StreamEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last = Some(event.offset);
                return Some(Ok(event));
            }
            match self.source.next().await?.map_err(StoreError::from) {
                Ok(read) => self.ready.extend(events(&self.handle.name, read)),
                Err(StoreError::Closed) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Saves the offset of the event that was received last.
    pub async fn save_offset(&mut self) -> Result<()> {
        match self.last {
            Some(offset) => self.handle.save_offset(self.consumer.as_str(), offset).await,
            None => Ok(()),
        }
    }
}
