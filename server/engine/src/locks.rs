//! Locks. Every comparison is the storage's; what is not held any more is an answer, not an error.

use crate::{Engine, EngineError, faculties::locks};
use rdq_spi::{HeldLock, Hold, LockName, TryLock};
use std::time::Duration;

/// The contract: a hold lasts from here …
const TTL_MIN: Duration = Duration::from_millis(1);
/// … to here.
const TTL_MAX: Duration = Duration::from_secs(12 * 3_600);

impl Engine {
    /// Acquires a lock that nobody holds; the holder gets the hold that it has. `None`: somebody
    /// else holds it.
    pub async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>, EngineError> {
        check_ttl(params.ttl)?;
        self.core
            .call("try_lock", |storage| async move {
                locks(&*storage, "try_lock")?.try_lock(params).await
            })
            .await
    }

    /// Moves the end of a hold to now + `ttl`. `None`: the hold is over.
    pub async fn renew_lock(
        &self,
        hold: Hold,
        ttl: Duration,
    ) -> Result<Option<HeldLock>, EngineError> {
        check_ttl(ttl)?;
        self.core
            .call("renew_lock", |storage| async move {
                locks(&*storage, "renew_lock")?.renew_lock(hold, ttl).await
            })
            .await
    }

    /// Ends a hold, and says whether there was one.
    pub async fn release_lock(&self, hold: Hold) -> Result<bool, EngineError> {
        self.core
            .call("release_lock", |storage| async move {
                locks(&*storage, "release_lock")?.release_lock(hold).await
            })
            .await
    }

    /// Who holds the lock now.
    pub async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>, EngineError> {
        self.core
            .call("get_lock", |storage| async move {
                locks(&*storage, "get_lock")?.get_lock(name).await
            })
            .await
    }
}

fn check_ttl(ttl: Duration) -> Result<(), EngineError> {
    if (TTL_MIN..=TTL_MAX).contains(&ttl) {
        return Ok(());
    }
    Err(EngineError::invalid("ttl", "must be from 1 millisecond to 12 hours"))
}
