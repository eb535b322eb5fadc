//! The feeds of this server, found by the number that their claims' tokens carry.

use crate::{
    clock::{self, Instant},
    core::Core,
    feed::{Ended, Feed},
};
use rdq_spi::{StaleDetail, TaskId};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};
use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Mutex<BTreeMap<u64, Weak<Feed>>>,
    gone: Notify,
}

impl Feeds {
    pub(crate) fn add(&self, feed: &Arc<Feed>) {
        self.lock().insert(feed.id, Arc::downgrade(feed));
    }

    pub(crate) fn remove(&self, feed: &Feed) {
        self.lock().remove(&feed.id);
        self.gone.notify_one();
    }

    pub(crate) fn all(&self) -> Vec<Arc<Feed>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn get(&self, id: u64) -> Option<Arc<Feed>> {
        if id == 0 { None } else { self.lock().get(&id).and_then(Weak::upgrade) }
    }

    /// These claims are over.
    pub(crate) fn settle(&self, ended: &[Ended]) {
        for of_one_feed in ended.chunk_by(|a, b| a.0 == b.0) {
            if let Some(feed) = of_one_feed.first().and_then(|ended| self.get(ended.0)) {
                feed.settle(of_one_feed);
            }
        }
    }

    pub(crate) fn extended(&self, claim: &Ended, deadline: Instant) {
        if let Some(feed) = self.get(claim.0) {
            feed.extended(&claim.1, claim.2, deadline);
        }
    }

    /// A task was ended under its claim, whoever holds it.
    pub(crate) fn lose(&self, id: &TaskId, detail: StaleDetail) {
        for feed in self.all() {
            feed.lose(id, detail);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Feed>>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Retires every feed once the engine closes, and gives work streams their time to finish.
    pub(crate) async fn close_feeds(self: Arc<Self>) {
        self.closing.cancelled().await;
        for feed in self.feeds.all() {
            feed.retire();
        }
        let deadline = clock::now() + self.options.drain_grace.min(clock::TIMER_MAX);
        while self.feeds.all().iter().any(|feed| feed.has_credits()) {
            tokio::select! {
                biased;
                () = self.feeds.gone.notified() => {}
                () = clock::sleep_until(deadline) => return,
            }
        }
    }
}
