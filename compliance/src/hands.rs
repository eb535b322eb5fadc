//! Callers at work until they are told to end. What they do is theirs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::task::JoinHandle;

/// Callers under way.
#[derive(Debug, Default)]
pub(crate) struct Hands {
    end: End,
    at_work: Vec<JoinHandle<()>>,
}

/// Tells a caller when to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct End(Arc<AtomicBool>);

impl End {
    /// Whether it is time to.
    pub(crate) fn has_come(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Hands {
    /// What tells them to end.
    pub(crate) fn end(&self) -> End {
        self.end.clone()
    }

    /// Adds one, who works until the end has come.
    pub(crate) fn put_to_work(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.at_work.push(tokio::spawn(work));
    }

    /// Returns once this holds. Panics if one of them has failed.
    pub(crate) async fn work_until(&self, is_enough: impl Fn() -> bool) {
        while !is_enough() {
            assert!(self.at_work.iter().all(|hand| !hand.is_finished()), "a hand failed");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets them end. Panics if one of them has failed.
    pub(crate) async fn finish(self) {
        self.end.0.store(true, Ordering::Relaxed);
        for hand in self.at_work {
            hand.await.expect("no hand fails");
        }
    }
}
