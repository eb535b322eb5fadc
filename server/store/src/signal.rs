//! Wakes: something changed, read again.

use crate::{Result, error::named};
use futures::StreamExt as _;
use rdq_engine::{Engine, Heard, Hearing};
use rdq_spi::ChannelName;

/// The channel of the wake after a time in which the listener was cut off from its database:
/// anything may have been notified meanwhile.
pub const RECONNECTED_CHANNEL: &str = "__rdq_listener_reconnected__";

/// A channel was notified, perhaps more than once, perhaps for nothing. It carries no payload: read
/// again what it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wake {
    /// The channel, or [`RECONNECTED_CHANNEL`].
    pub channel: String,
}

/// The wakes of a channel, from the moment at which it was made.
pub struct WakeReceiver {
    channel: ChannelName,
    source: Hearing,
}

impl std::fmt::Debug for WakeReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WakeReceiver").field("channel", &self.channel).finish_non_exhaustive()
    }
}

pub(crate) async fn listen(engine: &Engine, channel: &str) -> Result<WakeReceiver> {
    let channel = named("channel", ChannelName::new(channel))?;
    let source = engine.listen(channel.clone()).await?;
    Ok(WakeReceiver { channel, source })
}

impl WakeReceiver {
    /// The next wake. `None` once the watcher died or the store is closed: listen again, and read
    /// again.
    pub async fn recv(&mut self) -> Option<Wake> {
        loop {
            let channel = match self.source.next().await? {
                Ok(Heard::Silence) => continue,
                Ok(Heard::News) => self.channel.to_string(),
                Ok(Heard::Reconnected) => RECONNECTED_CHANNEL.to_owned(),
                Err(_) => return None,
            };
            return Some(Wake { channel });
        }
    }
}
