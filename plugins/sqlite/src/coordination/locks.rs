//! Locks. Each call looks at the clock anew: a hold that somebody saw end must not be renewed by a
//! transaction that began before.

use crate::{errors::Sql, reader::Snapshot, statements::text, transaction::Tx};
use rdq_spi::{HeldLock, Hold, LockName, OwnerName, Timestamp, TryLock};
use rusqlite::{OptionalExtension as _, Row, params};
use std::time::Duration;

/// A lock's row: its last hold.
struct Last {
    generation: i64,
    /// `None`: released.
    owner: Option<OwnerName>,
    expires_at: Timestamp,
}

impl Last {
    fn read(row: &Row<'_>) -> Sql<Self> {
        Ok(Self {
            generation: row.get(0)?,
            owner: row.get_ref(1)?.as_str_or_null()?.map(OwnerName::stored),
            expires_at: Timestamp::from_millis(row.get(2)?),
        })
    }

    /// The hold, if it is not over.
    fn held(self, now: Timestamp) -> Option<HeldLock> {
        let Self { generation, owner, expires_at } = self;
        let remaining = expires_at.since(now);
        let owner = owner.filter(|_| !remaining.is_zero())?;
        Some(HeldLock { owner, generation, expires_at, remaining })
    }
}

fn last(tx: &mut Tx<'_, '_>, name: &LockName) -> Sql<Option<Last>> {
    tx.sql.coordination.lock.query_row([name.as_str()], Last::read).optional()
}

/// The hold that this names, if it is not over.
fn find(tx: &mut Tx<'_, '_>, hold: &Hold, now: Timestamp) -> Sql<Option<HeldLock>> {
    let found = last(tx, &hold.name)?.and_then(|last| last.held(now));
    Ok(found.filter(|found| {
        found.owner == hold.owner
            && hold.generation.is_none_or(|generation| generation == found.generation)
    }))
}

fn put(tx: &mut Tx<'_, '_>, name: &LockName, held: &HeldLock, owner: Option<&str>) -> Sql<()> {
    let HeldLock { generation, expires_at, .. } = held;
    let put = &mut tx.sql.coordination.put_lock;
    put.execute(params![name.as_str(), generation, owner, expires_at.millis()]).map(|_| ())
}

/// Acquires the lock, or answers the hold that the owner has.
pub(super) fn try_lock(tx: &mut Tx<'_, '_>, params: &TryLock) -> Sql<Option<HeldLock>> {
    let TryLock { name, owner, ttl } = params;
    let now = tx.moment();
    let last = last(tx, name)?;
    let generation = last.as_ref().map_or(0, |last| last.generation) + 1;
    if let Some(held) = last.and_then(|last| last.held(now)) {
        return Ok(Some(held).filter(|held| held.owner == *owner));
    }
    let expires_at = now.after(*ttl);
    let remaining = expires_at.since(now);
    let held = HeldLock { owner: owner.clone(), generation, expires_at, remaining };
    put(tx, name, &held, Some(owner.as_str()))?;
    Ok(Some(held))
}

/// Moves a hold's end.
pub(super) fn renew(tx: &mut Tx<'_, '_>, hold: &Hold, ttl: Duration) -> Sql<Option<HeldLock>> {
    let now = tx.moment();
    let Some(mut found) = find(tx, hold, now)? else { return Ok(None) };
    found.expires_at = now.after(ttl);
    found.remaining = found.expires_at.since(now);
    put(tx, &hold.name, &found, Some(hold.owner.as_str()))?;
    Ok(Some(found))
}

/// Ends a hold, and says whether there was one.
pub(super) fn release(tx: &mut Tx<'_, '_>, hold: &Hold) -> Sql<bool> {
    let now = tx.moment();
    let Some(found) = find(tx, hold, now)? else { return Ok(false) };
    put(tx, &hold.name, &found, None)?;
    Ok(true)
}

impl Snapshot<'_> {
    /// Who holds the lock.
    pub(crate) fn lock(&self, name: &LockName) -> Sql<Option<HeldLock>> {
        let mut sql = self.db.prepare_cached(text!(lock))?;
        let last = sql.query_row([name.as_str()], Last::read).optional()?;
        Ok(last.and_then(|last| last.held(self.now)))
    }
}
