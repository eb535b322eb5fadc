//! Stored queue configurations, and shared secrets. Nothing here reads what a configuration says.

use crate::{admission::too_many_queues, errors::Sql, transaction::Tx};
use rdq_spi::{QueueConfig, QueueName, QueueRecord, Result, StorageError};
use rusqlite::params;

/// Stores a configuration.
pub(crate) fn put(
    tx: &mut Tx<'_, '_>,
    name: &QueueName,
    config: &QueueConfig,
    json: &str,
) -> Sql<Result<QueueRecord>> {
    let Some(queue) = tx.queue(name)? else { return Ok(Err(too_many_queues())) };
    tx.sql.queues.put_queue.execute(params![queue, json, tx.now.millis()])?;
    Ok(Ok(QueueRecord { queue: name.clone(), config: config.clone(), updated_at: tx.now }))
}

/// Removes a configuration, unless the queue holds tasks.
pub(crate) fn delete(tx: &mut Tx<'_, '_>, name: &QueueName) -> Sql<Result<bool>> {
    let Some(queue) = tx.find_queue(name)? else { return Ok(Ok(false)) };
    if tx.counts(queue)?.iter().any(|count| *count != 0) {
        return Ok(Err(StorageError::QueueNotEmpty { queue: name.clone() }));
    }
    tx.delete_queue(queue).map(Ok)
}

/// Stores a secret unless there is one, and answers what is stored.
pub(crate) fn shared_secret(tx: &mut Tx<'_, '_>, name: &str, candidate: &[u8]) -> Sql<Vec<u8>> {
    tx.sql.queues.put_secret.execute(params![name, candidate])?;
    tx.sql.queues.secret.query_row([name], |row| row.get(0))
}
