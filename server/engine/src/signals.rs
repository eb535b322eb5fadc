//! Signals: whoever listens is woken, and told nothing more.

use crate::{
    Engine, EngineError,
    batcher::{Batcher, Kind},
    clock,
    core::{Core, refuse_all},
    faculties::signals,
    limits::check_size,
    listeners::{Listener, gone},
};
use futures::{Stream, stream};
use rdq_spi::{ChannelName, Topic, Wake};
use std::{pin::Pin, sync::Arc};

/// What a listener hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Nothing: it is attached, or the channel was quiet for the keep-alive.
    Silence,
    /// Somebody notified the channel.
    News,
    /// The storage was cut off for a while: anything may have been notified.
    Reconnected,
}

/// What a listener hears, from now on; [`Heard::Silence`] first. It ends with an error: that the
/// source of wakes died, or [`EngineError::Closed`] on a drain.
pub type Hearing = Pin<Box<dyn Stream<Item = Result<Heard, EngineError>> + Send>>;

impl Engine {
    /// Wakes the listeners of a channel. Nobody is given the payload; it is only measured.
    pub async fn notify(
        &self,
        channel: ChannelName,
        payload_bytes: usize,
    ) -> Result<(), EngineError> {
        self.core.check_notification(payload_bytes)?;
        Batcher::<Notifications>::join(&self.core, channel).await
    }

    /// Listens to a channel.
    pub async fn listen(&self, channel: ChannelName) -> Result<Hearing, EngineError> {
        let core = Arc::clone(&self.core);
        if core.closing.is_cancelled() {
            return Err(EngineError::Closed);
        }
        let listener = core.listen(Topic::Channel(channel)).await?;
        let state = Some((core, listener, true));
        Ok(Box::pin(stream::unfold(state, |state| async move {
            let (core, mut listener, first) = state?;
            let heard = if first { Ok(Heard::Silence) } else { hear(&core, &mut listener).await };
            let go_on = heard.is_ok();
            Some((heard, go_on.then_some((core, listener, false))))
        })))
    }
}

async fn hear(core: &Core, listener: &mut Listener) -> Result<Heard, EngineError> {
    tokio::select! {
        biased;
        () = core.closing.cancelled() => Err(EngineError::Closed),
        wake = listener.next() => match wake {
            Some(Wake::News(_)) => Ok(Heard::News),
            Some(Wake::Reconnected) => Ok(Heard::Reconnected),
            None => Err(gone()),
        },
        () = clock::sleep(core.options.keep_alive) => Ok(Heard::Silence),
    }
}

impl Core {
    pub(crate) fn check_notification(&self, payload_bytes: usize) -> Result<(), EngineError> {
        match signals(&*self.storage, Notifications::OPERATION)?.payload_max() {
            Some(max) => check_size("payload", payload_bytes as u64, max as u64),
            None => Ok(()),
        }
    }
}

/// Notifications of single calls.
pub(crate) struct Notifications;

impl Kind for Notifications {
    type Item = ChannelName;
    type Answer = ();
    const OPERATION: &'static str = "notify";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.notifications
    }

    async fn run(core: Arc<Core>, channels: Vec<ChannelName>) -> Vec<Result<(), EngineError>> {
        let count = channels.len();
        let notified = match signals(&*core.storage, Self::OPERATION) {
            Ok(signals) => signals.notify(channels).await,
            Err(error) => Err(error),
        };
        match notified {
            Ok(()) => (0..count).map(|_| Ok(())).collect(),
            Err(error) => refuse_all(&error.into(), count),
        }
    }
}
