//! Streams: single publications and saved offsets share storage calls; reads and trims are bounded.

use crate::{
    Engine, EngineError,
    batcher::{Batcher, Kind, about},
    core::{Core, spread},
    faculties::streams,
    limits::{ANSWER_BYTES_MAX, COORDINATED_BYTES_MAX, EXTENT_MAX, STEP_EVENTS_MAX, check_size},
};
use rdq_spi::{
    ConsumerName, NewEvent, ReadFrom, ReadParams, SaveOffset, StreamEvent, StreamName, TrimParams,
};
use std::sync::Arc;

/// Numbers, tags and lengths around an event's own bytes.
const EVENT_BYTES: usize = 64;

impl Engine {
    /// Appends an event, and answers its offset.
    pub async fn publish(&self, event: NewEvent) -> Result<i64, EngineError> {
        check_event(&event)?;
        Batcher::<Publications>::join(&self.core, event).await
    }

    /// Reads events in the order of their offsets, as many as one answer carries; `limit` is cut to
    /// 1,000, and 0 reads nothing.
    pub async fn read_stream(
        &self,
        stream: StreamName,
        from: ReadFrom,
        limit: u32,
    ) -> Result<Vec<StreamEvent>, EngineError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let params = read_params(stream, from, limit);
        self.core
            .call("read", |storage| async move { streams(&*storage, "read")?.read(params).await })
            .await
    }

    /// Saves what a consumer has read up to, and answers what is saved: never less than before.
    pub async fn save_offset(&self, offset: SaveOffset) -> Result<i64, EngineError> {
        Batcher::<SavedOffsets>::join(&self.core, offset).await
    }

    /// What a consumer saved; 0 if nothing.
    pub async fn saved_offset(
        &self,
        stream: StreamName,
        consumer: ConsumerName,
    ) -> Result<i64, EngineError> {
        self.core
            .call("offset", |storage| async move {
                streams(&*storage, "offset")?.offset(stream, consumer).await
            })
            .await
    }

    /// Removes the events at or below the horizon, in bounded steps, and counts them.
    pub async fn trim(&self, stream: StreamName, horizon: i64) -> Result<u64, EngineError> {
        let mut count = 0;
        loop {
            let params = TrimParams { stream: stream.clone(), horizon, limit: STEP_EVENTS_MAX };
            let trimmed =
                self.core
                    .call("trim", |storage| async move {
                        streams(&*storage, "trim")?.trim(params).await
                    })
                    .await?;
            count += trimmed.count;
            if !trimmed.more {
                return Ok(count);
            }
        }
    }
}

pub(crate) fn check_event(event: &NewEvent) -> Result<(), EngineError> {
    check_size("payload", event.payload.len() as u64, COORDINATED_BYTES_MAX)
}

/// A read whose answer fits one message.
pub(crate) fn read_params(stream: StreamName, from: ReadFrom, limit: u32) -> ReadParams {
    let limit = limit.clamp(1, EXTENT_MAX);
    let around = (EVENT_BYTES + stream.as_str().len()) * limit as usize;
    ReadParams { stream, from, limit, bytes_max: ANSWER_BYTES_MAX - around }
}

/// What an event weighs by the storage's count.
pub(crate) fn event_bytes(event: &StreamEvent) -> usize {
    event.payload.len() + event.key.as_ref().map_or(0, |key| key.as_str().len())
}

/// Publications of single calls.
pub(crate) struct Publications;

impl Kind for Publications {
    type Item = NewEvent;
    type Answer = i64;
    const OPERATION: &'static str = "publish";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.publications
    }

    fn bytes(event: &NewEvent) -> usize {
        event.payload.len() + event.key.as_ref().map_or(0, |key| key.as_str().len())
    }

    fn about(event: &NewEvent) -> Option<u64> {
        Some(about(&event.stream))
    }

    async fn run(core: Arc<Core>, events: Vec<NewEvent>) -> Vec<Result<i64, EngineError>> {
        let count = events.len();
        let answers = match streams(&*core.storage, Self::OPERATION) {
            Ok(streams) => streams.publish(events).await,
            Err(error) => Err(error),
        };
        spread(Self::OPERATION, answers, count)
    }
}

/// Offsets saved by single calls.
pub(crate) struct SavedOffsets;

impl Kind for SavedOffsets {
    type Item = SaveOffset;
    type Answer = i64;
    const OPERATION: &'static str = "save_offsets";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.saved_offsets
    }

    fn about(offset: &SaveOffset) -> Option<u64> {
        Some(about(&(&offset.stream, &offset.consumer)))
    }

    async fn run(core: Arc<Core>, offsets: Vec<SaveOffset>) -> Vec<Result<i64, EngineError>> {
        let count = offsets.len();
        let answers = match streams(&*core.storage, Self::OPERATION) {
            Ok(streams) => streams.save_offsets(offsets).await,
            Err(error) => Err(error),
        };
        spread(Self::OPERATION, answers, count)
    }
}
