//! One of many at a time, by a named lock: whoever holds it renews it while it works, and stops once
//! it is lost. Nothing that a task waits for is done under one.

use crate::{
    EngineError,
    clock::{self, Instant},
    core::Core,
    random,
    schedules::required,
};
use rdq_spi::{HeldLock, Hold, LockName, OwnerName, TryLock};
use std::{sync::Arc, time::Duration};

/// After a renewal that failed; one is due at a third of the time to live.
const RENEW_AGAIN: Duration = Duration::from_millis(300);

/// One who would hold a lock.
pub(crate) struct Candidate {
    core: Arc<Core>,
    name: &'static str,
    owner: OwnerName,
    ttl: Duration,
}

/// A hold of the lock.
pub(crate) struct Lead<'a> {
    candidate: &'a Candidate,
    generation: i64,
    /// By the clock of this process, and so not after it ends.
    until: Instant,
}

impl Candidate {
    /// Somebody new, whoever else there is in this process.
    pub(crate) fn new(
        core: Arc<Core>,
        name: &'static str,
        ttl: Duration,
    ) -> Result<Self, EngineError> {
        let owner = OwnerName::stored(random::unique()?);
        Ok(Self { core, name, owner, ttl })
    }

    /// Takes the lock, or goes on holding it, if nobody else does.
    pub(crate) async fn try_lead(&self) -> Result<Option<Lead<'_>>, EngineError> {
        let asked = clock::now();
        let (name, owner) = (LockName::stored(self.name), self.owner.clone());
        let params = TryLock { name, owner, ttl: self.ttl };
        let held = self.core.call("try_lock", |storage| async move {
            required(storage.locks())?.try_lock(params).await
        });
        Ok(held.await?.map(|held| Lead {
            candidate: self,
            generation: held.generation,
            until: end(asked, &held),
        }))
    }

    /// Waits until nobody else holds the lock.
    pub(crate) async fn lead(&self) -> Result<Lead<'_>, EngineError> {
        loop {
            if let Some(lead) = self.try_lead().await? {
                return Ok(lead);
            }
            clock::sleep(clock::jittered(self.ttl / 3, 0.2)).await;
        }
    }
}

impl Lead<'_> {
    /// Moves the end of the hold, and says whether it was still one.
    pub(crate) async fn renew(&mut self) -> Result<bool, EngineError> {
        let asked = clock::now();
        let (hold, ttl) = (self.hold(), self.candidate.ttl);
        let renewal = self.candidate.core.call("renew_lock", |storage| async move {
            required(storage.locks())?.renew_lock(hold, ttl).await
        });
        let renewed = renewal.await?;
        if let Some(lock) = &renewed {
            self.until = end(asked, lock);
        }
        Ok(renewed.is_some())
    }

    /// Renews the hold until it is lost.
    pub(crate) async fn until_lost(&mut self) {
        let mut pause = self.candidate.ttl / 3;
        loop {
            tokio::select! {
                biased;
                () = clock::sleep_until(self.until) => return,
                () = clock::sleep(pause) => {}
            }
            let until = self.until;
            let renewed = tokio::select! {
                biased;
                () = clock::sleep_until(until) => return,
                renewed = self.renew() => renewed,
            };
            pause = match renewed {
                Ok(true) => self.candidate.ttl / 3,
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(%error, lock = self.candidate.name, "a lock was not renewed");
                    RENEW_AGAIN
                }
            };
        }
    }

    /// Lets somebody else have it. If the storage fails, the hold ends by itself.
    pub(crate) async fn release(self) {
        let hold = self.hold();
        let release = self.candidate.core.call("release_lock", |storage| async move {
            required(storage.locks())?.release_lock(hold).await
        });
        if let Err(error) = release.await {
            tracing::debug!(%error, lock = self.candidate.name, "a lock was not released");
        }
    }

    fn hold(&self) -> Hold {
        let Candidate { name, owner, .. } = self.candidate;
        let generation = Some(self.generation);
        Hold { name: LockName::stored(*name), owner: owner.clone(), generation }
    }
}

fn end(asked: Instant, lock: &HeldLock) -> Instant {
    asked + lock.remaining.min(clock::TIMER_MAX)
}
