//! Wakes of the storage, listened for once a topic however many wait for it on this server.

use crate::{EngineError, core::Core, faculties::signals};
use futures::StreamExt as _;
use rdq_spi::{StorageError, Topic, Wake, WakeHub, Wakes};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The topics that somebody on this server listens to.
#[derive(Default)]
pub(crate) struct Listeners(Mutex<HashMap<Topic, Weak<Shared>>>);

/// One listener of the storage, and those who share it. The last of them ends it.
struct Shared {
    source: Arc<Source>,
    attached: OnceCell<()>,
    unneeded: CancellationToken,
    _end: DropGuard,
}

#[derive(Default)]
struct Source {
    hub: WakeHub,
    ended: AtomicBool,
}

/// Wakes of one topic, from now on. They end when the storage's do.
pub(crate) struct Listener {
    wakes: Wakes,
    _shared: Arc<Shared>,
}

impl Listener {
    pub(crate) async fn next(&mut self) -> Option<Wake> {
        self.wakes.next().await
    }
}

impl Listeners {
    fn share(&self, topic: &Topic) -> Arc<Shared> {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = topics.get(topic).and_then(Weak::upgrade)
            && !shared.source.ended.load(Ordering::SeqCst)
        {
            return shared;
        }
        topics.retain(|_, shared| shared.strong_count() > 0);
        let unneeded = CancellationToken::new();
        let shared = Arc::new(Shared {
            source: Arc::default(),
            attached: OnceCell::new(),
            _end: unneeded.clone().drop_guard(),
            unneeded,
        });
        topics.insert(topic.clone(), Arc::downgrade(&shared));
        shared
    }
}

impl Core {
    /// Listens to a topic. Once this returns, nothing that is committed later is missed.
    pub(crate) async fn listen(self: &Arc<Self>, topic: Topic) -> Result<Listener, EngineError> {
        loop {
            let shared = self.listeners.share(&topic);
            let wakes = shared.source.hub.listen(std::slice::from_ref(&topic));
            shared.attached.get_or_try_init(|| self.attach(&topic, &shared)).await?;
            // Who ends the source says so first, and closes its listeners then.
            if !shared.source.ended.load(Ordering::SeqCst) {
                return Ok(Listener { wakes, _shared: shared });
            }
        }
    }

    async fn attach(self: &Arc<Self>, topic: &Topic, shared: &Shared) -> Result<(), EngineError> {
        let topics = vec![topic.clone()];
        let mut wakes =
            self.call("listen", |storage| async move {
                signals(&*storage, "listen")?.listen(topics).await
            })
            .await?;
        let (source, unneeded) = (Arc::clone(&shared.source), shared.unneeded.clone());
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            loop {
                let wake = tokio::select! {
                    () = unneeded.cancelled() => break,
                    () = closing.cancelled() => break,
                    wake = wakes.next() => wake,
                };
                match wake {
                    Some(Wake::News(topic)) => source.hub.wake(&topic),
                    Some(Wake::Reconnected) => source.hub.reconnected(),
                    None => break,
                }
            }
            source.ended.store(true, Ordering::SeqCst);
            source.hub.close();
        });
        Ok(())
    }
}

/// What ends who waited for wakes that end.
pub(crate) fn gone() -> EngineError {
    let source = "the source of wakes ended".into();
    StorageError::Unavailable { operation: "listen", source }.into()
}
