//! Stored queue configurations, and shared secrets. Nothing here reads what a configuration says.

use crate::errors::{Sql, corrupt};
use rdq_spi::{QueueConfig, QueueName, QueueRecord, Result, StorageError, Timestamp};
use sqlx::{PgConnection, Row as _};

/// Stores a configuration.
pub(crate) async fn put(
    db: &mut PgConnection,
    queue: &QueueName,
    config: &QueueConfig,
    json: &str,
) -> Sql<QueueRecord> {
    let row = sqlx::query(include_str!("queries/put_queue.sql"))
        .bind(queue.as_str())
        .bind(json)
        .fetch_one(db)
        .await?;
    let updated_at = Timestamp::from_millis(row.try_get("updated_at")?);
    Ok(QueueRecord { queue: queue.clone(), config: config.clone(), updated_at })
}

/// Every stored configuration.
pub(crate) async fn records(db: &mut PgConnection) -> Sql<Vec<QueueRecord>> {
    let rows = sqlx::query(include_str!("queries/queue_records.sql")).fetch_all(db).await?;
    rows.iter()
        .map(|row| {
            let config = serde_json::from_str(row.try_get("config")?);
            Ok(QueueRecord {
                queue: QueueName::stored(row.try_get::<&str, _>("name")?),
                config: config.map_err(|_| corrupt("queue configuration"))?,
                updated_at: Timestamp::from_millis(row.try_get("updated_at")?),
            })
        })
        .collect()
}

/// Removes a configuration, unless the queue holds tasks.
pub(crate) async fn delete(db: &mut PgConnection, queue: &QueueName) -> Sql<Result<bool>> {
    let row = sqlx::query(include_str!("queries/delete_queue.sql"))
        .bind(queue.as_str())
        .fetch_one(db)
        .await?;
    if row.try_get("holds_tasks")? {
        return Ok(Err(StorageError::QueueNotEmpty { queue: queue.clone() }));
    }
    Ok(Ok(row.try_get("removed")?))
}

/// The names of queues that hold tasks or have a configuration, by name.
pub(crate) async fn names(
    db: &mut PgConnection,
    after: Option<&QueueName>,
    limit: u32,
) -> Sql<Vec<QueueName>> {
    let rows = sqlx::query(include_str!("queries/queue_names.sql"))
        .bind(after.map_or("", QueueName::as_str))
        .bind(i64::from(limit))
        .fetch_all(db)
        .await?;
    rows.iter().map(|row| Ok(QueueName::stored(row.try_get::<&str, _>("name")?))).collect()
}

/// Stores a secret unless there is one, and answers what is stored.
pub(crate) async fn shared_secret(
    db: &mut PgConnection,
    name: &str,
    candidate: &[u8],
) -> Sql<Vec<u8>> {
    let row = sqlx::query(include_str!("queries/shared_secret.sql"))
        .bind(name)
        .bind(candidate)
        .fetch_one(db)
        .await?;
    row.try_get("secret")
}

/// Writes, so that the commit proves that writing works.
pub(crate) async fn touch(db: &mut PgConnection) -> Sql<()> {
    sqlx::query("UPDATE store SET store_id = store_id").execute(db).await?;
    Ok(())
}
