//! Named locks. What a hold is judged by is the database's clock, read after its row was waited for.

use crate::{errors::Sql, rows};
use rdq_spi::{HeldLock, Hold, LockName, OwnerName, Timestamp, TryLock};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use std::time::Duration;

/// Acquires a lock, or answers the hold that the owner has.
pub(crate) async fn try_lock(db: &mut PgConnection, params: &TryLock) -> Sql<Option<HeldLock>> {
    let row = sqlx::query(include_str!("../queries/try_lock.sql"))
        .bind(params.name.as_str())
        .bind(params.owner.as_str())
        .bind(rows::millis(params.ttl))
        .fetch_optional(db)
        .await?;
    row.as_ref().map(held).transpose()
}

/// Moves a hold's end.
pub(crate) async fn renew(
    db: &mut PgConnection,
    hold: &Hold,
    ttl: Duration,
) -> Sql<Option<HeldLock>> {
    let row = sqlx::query(include_str!("../queries/renew_lock.sql"))
        .bind(hold.name.as_str())
        .bind(hold.owner.as_str())
        .bind(hold.generation)
        .bind(rows::millis(ttl))
        .fetch_optional(db)
        .await?;
    row.as_ref().map(held).transpose()
}

/// Ends a hold.
pub(crate) async fn release(db: &mut PgConnection, hold: &Hold) -> Sql<bool> {
    sqlx::query("SELECT release_lock($1, $2, $3) AS released")
        .bind(hold.name.as_str())
        .bind(hold.owner.as_str())
        .bind(hold.generation)
        .fetch_one(db)
        .await?
        .try_get("released")
}

/// Who holds a lock now.
pub(crate) async fn get(db: &mut PgConnection, name: &LockName) -> Sql<Option<HeldLock>> {
    let row = sqlx::query(include_str!("../queries/get_lock.sql"))
        .bind(name.as_str())
        .fetch_optional(db)
        .await?;
    row.as_ref().map(held).transpose()
}

fn held(row: &PgRow) -> Sql<HeldLock> {
    Ok(HeldLock {
        owner: OwnerName::stored(row.try_get::<&str, _>("owner")?),
        generation: row.try_get("generation")?,
        expires_at: Timestamp::from_millis(row.try_get("expires_at")?),
        remaining: rows::remaining(row.try_get("remaining")?),
    })
}
