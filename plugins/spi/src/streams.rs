//! Streams: durable events in one order per stream, and the offsets of those who read them.

use crate::{ConsumerName, EventKey, Result, StreamName, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Where.
    pub stream: StreamName,
    /// Carried, not interpreted.
    pub key: Option<EventKey>,
    /// Opaque.
    pub payload: Bytes,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEvent {
    /// Its place in the stream: above 0, and above every earlier one's.
    pub offset: i64,
    /// Carried, not interpreted.
    pub key: Option<EventKey>,
    /// Opaque.
    pub payload: Bytes,
    /// When it was published, by the storage's clock. It orders nothing.
    pub created_at: Timestamp,
}

/// Where a read begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// After this offset; any number is well-defined.
    Offset(i64),
    /// After what this consumer saved; from the beginning if it saved nothing.
    Consumer(ConsumerName),
}

/// Arguments of [`Streams::read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadParams {
    /// The stream.
    pub stream: StreamName,
    /// Where to begin.
    pub from: ReadFrom,
    /// At least 1 (Bounded).
    pub limit: u32,
    /// Stop before keys and payloads outgrow this (Bounded); a first event always fits.
    pub bytes_max: usize,
}

/// A checkpoint of a consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveOffset {
    /// The stream.
    pub stream: StreamName,
    /// Whose.
    pub consumer: ConsumerName,
    /// What it has read up to, inclusive. Any number: one below the saved one changes nothing.
    pub offset: i64,
}

/// Arguments of [`Streams::trim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimParams {
    /// The stream.
    pub stream: StreamName,
    /// Events up to here go, inclusive. Any number is well-defined.
    pub horizon: i64,
    /// At least 1 (Bounded).
    pub limit: u32,
}

/// The answer to one step of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trimmed {
    /// How many events went.
    pub count: u64,
    /// Whether the step stopped at its limit, and more may be left.
    pub more: bool,
}

/// Streams: the faculty behind `StreamService`.
///
/// # Contract
///
/// - **StreamOrder.** Offsets of a stream grow in the order in which its events become visible: no
///   event ever appears below one that a reader has seen. None is reused, after a trim, a rollback or
///   a restart neither; gaps are legal.
/// - **MonotoneOffsets.** A saved offset never goes back.
/// - **TrimBoundary.** A trim removes what is at or below its horizon and nothing else; what is left
///   keeps its offsets, saved offsets stay as they are, and a read that starts inside what was
///   trimmed goes on at the first event left.
/// - **Bounded** as everywhere.
#[async_trait]
pub trait Streams: Send + Sync {
    /// Appends events, in the order of the call, each durable when its offset is answered. Streams'
    /// listeners are woken.
    async fn publish(&self, events: Vec<NewEvent>) -> Result<Vec<Result<i64>>>;

    /// Reads events in the order of their offsets. An unknown stream is empty.
    async fn read(&self, params: ReadParams) -> Result<Vec<StreamEvent>>;

    /// Saves offsets, and answers what is saved then.
    async fn save_offsets(&self, offsets: Vec<SaveOffset>) -> Result<Vec<Result<i64>>>;

    /// What the consumer saved; 0 if nothing.
    async fn offset(&self, stream: StreamName, consumer: ConsumerName) -> Result<i64>;

    /// One bounded step of removing the oldest events. It wakes nobody.
    async fn trim(&self, params: TrimParams) -> Result<Trimmed>;
}
