//! Turns of those who publish to one stream within a process.

use crate::{Result, StorageError, StreamName};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard};

/// How long one waits for a turn.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Who publishes to which stream: open transactions take turns, and others wait for theirs to end,
/// so that those of one process do not undo each other.
#[derive(Debug, Default, Clone)]
pub struct StreamTurns(Arc<Mutex<Turnstiles>>);

type Turnstiles = HashMap<StreamName, Arc<Turnstile<()>>>;

/// A turn: it ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    stream: StreamName,
    guard: Option<OwnedMutexGuard<()>>,
    turns: StreamTurns,
}

impl StreamTurns {
    /// Waits for one's turn at a stream, for up to 5 seconds; else [`StorageError::Contention`].
    pub async fn take(&self, stream: &StreamName) -> Result<Turn> {
        let turnstile = self.lock().entry(stream.clone()).or_default().clone();
        // Made before the wait: whatever becomes of it, the turnstile is cleared away after.
        let mut turn = Turn { stream: stream.clone(), guard: None, turns: self.clone() };
        match tokio::time::timeout(WAIT_MAX, turnstile.lock_owned()).await {
            Ok(guard) => turn.guard = Some(guard),
            Err(_) => return Err(StorageError::Contention { operation: "publish" }),
        }
        Ok(turn)
    }

    /// Which of these streams somebody has a turn at.
    pub fn taken<'a>(&self, streams: impl Iterator<Item = &'a StreamName>) -> Vec<StreamName> {
        let turnstiles = self.lock();
        if turnstiles.is_empty() {
            return Vec::new();
        }
        streams.filter(|stream| turnstiles.contains_key(*stream)).cloned().collect()
    }

    /// Waits until each of these turns was one's own, for up to 5 seconds each.
    pub async fn wait(&self, taken: Vec<StreamName>) -> Result<()> {
        for stream in taken {
            self.take(&stream).await?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Turnstiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut turnstiles = self.turns.lock();
        self.guard = None;
        // Under the lock nobody else can come to hold it: one that only the map has is idle.
        if turnstiles.get(&self.stream).is_some_and(|turnstile| Arc::strong_count(turnstile) == 1) {
            turnstiles.remove(&self.stream);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_are_waited_for_and_leave_nothing_behind() {
        let turns = StreamTurns::default();
        let (a, b) = (StreamName::new("a").unwrap(), StreamName::new("b").unwrap());
        let turn = turns.take(&a).await.unwrap();
        assert_eq!(turns.taken([&a, &b].into_iter()), std::slice::from_ref(&a));
        assert!(matches!(turns.take(&a).await, Err(StorageError::Contention { .. })));
        assert!(matches!(turns.wait(vec![a.clone()]).await, Err(StorageError::Contention { .. })));

        let waiting = tokio::spawn({
            let (turns, a) = (turns.clone(), a.clone());
            async move { turns.take(&a).await.unwrap() }
        });
        tokio::task::yield_now().await;
        drop(turn);
        drop(waiting.await.unwrap());
        assert!(turns.lock().is_empty());
    }
}
