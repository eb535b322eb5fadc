//! Named locks.

use crate::state::State;
use rdq_spi::{HeldLock, Hold, LockName, OwnerName, Timestamp, TryLock};
use std::time::Duration;

/// A lock that somebody held at least once. It is never removed, so that its generations only grow.
#[derive(Debug)]
pub(crate) struct Lock {
    owner: OwnerName,
    generation: i64,
    /// When the hold ends, or ended.
    expires_at: Timestamp,
}

impl Lock {
    fn held(&self, now: Timestamp) -> Option<HeldLock> {
        (self.expires_at > now).then(|| HeldLock {
            owner: self.owner.clone(),
            generation: self.generation,
            expires_at: self.expires_at,
            remaining: self.expires_at.since(now),
        })
    }

    fn is(&self, hold: &Hold, now: Timestamp) -> bool {
        self.expires_at > now
            && self.owner == hold.owner
            && hold.generation.is_none_or(|generation| generation == self.generation)
    }
}

impl State {
    pub(crate) fn try_lock(&mut self, params: TryLock, now: Timestamp) -> Option<HeldLock> {
        let TryLock { name, owner, ttl } = params;
        let lock = self.locks.get(&name);
        if let Some(held) = lock.and_then(|lock| lock.held(now)) {
            return (held.owner == owner).then_some(held);
        }
        let generation = lock.map_or(0, |lock| lock.generation) + 1;
        let lock = Lock { owner, generation, expires_at: now.after(ttl) };
        let held = lock.held(now);
        self.locks.insert(name, lock);
        held
    }

    pub(crate) fn renew_lock(
        &mut self,
        hold: &Hold,
        ttl: Duration,
        now: Timestamp,
    ) -> Option<HeldLock> {
        let lock = self.locks.get_mut(&hold.name).filter(|lock| lock.is(hold, now))?;
        lock.expires_at = now.after(ttl);
        lock.held(now)
    }

    pub(crate) fn release_lock(&mut self, hold: &Hold, now: Timestamp) -> bool {
        match self.locks.get_mut(&hold.name).filter(|lock| lock.is(hold, now)) {
            Some(lock) => {
                lock.expires_at = now;
                true
            }
            None => false,
        }
    }

    pub(crate) fn get_lock(&self, name: &LockName, now: Timestamp) -> Option<HeldLock> {
        self.locks.get(name)?.held(now)
    }
}
