//! Signals: fire and forget, from "now" on; and the wakes that streams send.

use crate::{ChannelName, Result, StreamName};
use async_trait::async_trait;
use futures::Stream;
use std::pin::Pin;

/// What a listener can wait for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Somebody notified the channel.
    Channel(ChannelName),
    /// The stream may have events that were not there before.
    Stream(StreamName),
}

/// Something happened, or may have: read again. It carries no payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// The topic has news. May coalesce with others, repeat, or be for nothing.
    News(Topic),
    /// The listener was cut off for a while: anything may have happened meanwhile.
    Reconnected,
}

/// A stream of wakes. It ends when its source died.
pub type Wakes = Pin<Box<dyn Stream<Item = Wake> + Send>>;

/// Signals: the faculty behind `SignalService`, and what streams are woken by.
///
/// # Contract
///
/// - **WakesReach.** A listener hears of every notification and every event that was committed after
///   [`Signals::listen`] returned, through whatever handle, at least once, unless it is told
///   [`Wake::Reconnected`] or its stream ends. Wakes of one topic may coalesce.
/// - **CommitAtomicity.** A notification inside a transaction is heard of after its commit, and
///   never if it was rolled back.
#[async_trait]
pub trait Signals: Send + Sync {
    /// The largest payload of a notification that the backend takes, in bytes; `None` for any. No
    /// payload is handed to a listener, so a plugin is not given it.
    fn payload_max(&self) -> Option<usize> {
        None
    }

    /// Wakes whoever listens to these channels.
    async fn notify(&self, channels: Vec<ChannelName>) -> Result<()>;

    /// Wakes of these topics, from now on.
    async fn listen(&self, topics: Vec<Topic>) -> Result<Wakes>;
}
