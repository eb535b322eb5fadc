//! Named locks: exclusion for a time, and a number that fences whoever held it before.

use crate::{LockName, OwnerName, Result, Timestamp};
use async_trait::async_trait;
use std::time::Duration;

/// A lock that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// Who.
    pub owner: OwnerName,
    /// Grows with every acquisition of this name, for ever.
    pub generation: i64,
    /// When the hold ends unless it is renewed, by the storage's clock.
    pub expires_at: Timestamp,
    /// How long that is from now, by the storage's clock; above zero.
    pub remaining: Duration,
}

/// Arguments of [`Locks::try_lock`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TryLock {
    /// The lock.
    pub name: LockName,
    /// Who wants it.
    pub owner: OwnerName,
    /// For how long; above zero.
    pub ttl: Duration,
}

/// Names a hold of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub name: LockName,
    /// Who holds it.
    pub owner: OwnerName,
    /// Which of the owner's holds; any if unset.
    pub generation: Option<i64>,
}

/// Locks: the faculty behind `LockService`.
///
/// # Contract
///
/// - **LockExclusion.** A name has at most one holder at any moment of the storage's clock. Nothing
///   succeeds for a hold past its end: it is over, whether or not somebody else came.
/// - **GenerationsGrow.** Each acquisition's generation is above every earlier one of that name, for
///   ever, releases and restarts between them or not.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Acquires the lock if nobody holds it. The holder itself gets the hold it has, with its end as
    /// it was: only a renewal moves that. `None`: somebody else holds it.
    async fn try_lock(&self, params: TryLock) -> Result<Option<HeldLock>>;

    /// Moves the hold's end to now + `ttl`. `None`: the hold is over.
    async fn renew_lock(&self, hold: Hold, ttl: Duration) -> Result<Option<HeldLock>>;

    /// Ends the hold, and says whether there was one.
    async fn release_lock(&self, hold: Hold) -> Result<bool>;

    /// Who holds the lock now.
    async fn get_lock(&self, name: LockName) -> Result<Option<HeldLock>>;
}
