//! Maintenance of a queue: what has expired dies, and what was kept long enough goes.

use crate::{errors::Sql, rows::millis};
use rdq_spi::{Age, SweepParams, Swept};
use sqlx::{PgConnection, Row as _};

/// One bounded step.
pub(crate) async fn sweep(db: &mut PgConnection, params: &SweepParams) -> Sql<Swept> {
    let SweepParams { queue, expire, succeeded_older_than, cancelled_older_than, dead, limit } =
        params;
    let age = |age: &Option<Age>| match age {
        Some(Age::LongerThan(age)) => Some(millis(*age)),
        Some(Age::Before(_)) | None => None,
    };
    let before = |age: &Option<Age>| match age {
        Some(Age::Before(instant)) => Some(instant.millis()),
        Some(Age::LongerThan(_)) | None => None,
    };
    let row = sqlx::query(include_str!("queries/sweep.sql"))
        .bind(queue.as_str())
        .bind(expire)
        .bind(age(succeeded_older_than))
        .bind(before(succeeded_older_than))
        .bind(age(cancelled_older_than))
        .bind(before(cancelled_older_than))
        .bind(dead.is_some())
        .bind(dead.and_then(|dead| dead.queue).map(millis))
        .bind(i32::try_from(*limit).unwrap_or(i32::MAX))
        .fetch_one(db)
        .await?;
    let count = |column| Ok(u64::from(row.try_get::<i32, _>(column)?.unsigned_abs()));
    let count: &dyn Fn(&'static str) -> Sql<u64> = &count;
    Ok(Swept { expired: count("expired")?, removed: count("removed")?, more: row.try_get("more")? })
}
