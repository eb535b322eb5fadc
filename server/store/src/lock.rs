//! A hold of a named lock.

use crate::Result;
use rdq_engine::Engine;
use rdq_spi::{HeldLock, Hold, LockName, Timestamp};
use std::time::Duration;

/// A hold of a lock. It ends at its deadline unless it is renewed; dropped, it stays until then.
#[derive(Debug)]
pub struct Lock {
    engine: Engine,
    hold: Hold,
    held: HeldLock,
}

pub(crate) fn taken(engine: Engine, name: LockName, held: HeldLock) -> Lock {
    let hold = Hold { name, owner: held.owner.clone(), generation: Some(held.generation) };
    Lock { engine, hold, held }
}

impl Lock {
    /// The fencing number of this hold: it grows with every acquisition of the name, for ever.
    pub fn generation(&self) -> i64 {
        self.held.generation
    }

    /// When the hold ends, as of its acquisition or its last renewal, by the storage's clock.
    pub fn expires_at(&self) -> Timestamp {
        self.held.expires_at
    }

    /// Moves the hold's end to `ttl` from now. `false`: the hold is over, stop what it guarded.
    pub async fn renew(&mut self, ttl: Duration) -> Result<bool> {
        match self.engine.renew_lock(self.hold.clone(), ttl).await? {
            Some(held) => {
                self.held = held;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Ends the hold. `false`: it was over before.
    pub async fn release(self) -> Result<bool> {
        Ok(self.engine.release_lock(self.hold).await?)
    }
}
