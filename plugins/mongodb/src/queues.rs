//! Queues' names and stored configurations, secrets that all servers share, and the sign of life.

use crate::{
    database::{Db, literal},
    document::instant,
    errors::{Access, Failure, Step, corrupt},
};
use futures::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use rdq_spi::{QueueConfig, QueueName, QueueRecord, StorageError};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Name {
    #[serde(rename = "_id")]
    name: String,
}

/// Reads and writes, as tasks do.
pub(crate) async fn touch(db: &Db) -> Step<()> {
    let command = doc! {
        "findAndModify": "store",
        "query": { "_id": "touched" },
        "update": [{ "$set": { "at": "$$NOW" } }],
        "upsert": true,
    };
    match db.write(command).await {
        // Of two who touch it for the first time one is enough.
        Ok(_) | Err(Failure::Contention) => Ok(()),
        Err(Failure::Unknown(cause)) => Err(Failure::Unavailable(cause)),
        Err(failure) => Err(failure),
    }
}

/// From one queue's tasks to the next queue's, without reading what is between.
pub(crate) async fn names(db: &Db, after: Option<&QueueName>, limit: u32) -> Step<Vec<QueueName>> {
    let after = after.map_or("", QueueName::as_str);
    let pipeline = vec![
        doc! { "$match": { "queue": { "$gt": after } } },
        doc! { "$group": { "_id": "$queue" } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": i64::from(limit) },
    ];
    let holding: Vec<Name> = db.read(pipeline).await?;
    let read = |error| Failure::of(error, Access::Read);
    let queues = db.beside("queues");
    let stored = queues.find(doc! { "_id": { "$gt": after } });
    let stored = stored.sort(doc! { "_id": 1 }).limit(i64::from(limit)).await.map_err(read)?;
    let stored: Vec<Document> = stored.try_collect().await.map_err(read)?;
    let stored = stored.iter().filter_map(|it| it.get_str("_id").ok().map(str::to_owned));
    let mut names: Vec<_> = holding.into_iter().map(|it| it.name).chain(stored).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(limit as usize);
    Ok(names.into_iter().map(QueueName::stored).collect())
}

pub(crate) async fn put(
    db: &Db,
    queue: &QueueName,
    config: QueueConfig,
    json: &str,
) -> Step<QueueRecord> {
    let now = doc! { "$max": ["$$NOW", crate::document::date(db.clock.latest())] };
    let command = doc! {
        "findAndModify": "queues",
        "query": { "_id": queue.as_str() },
        "update": [{ "$set": { "config": literal(json), "updated_at": now } }],
        "upsert": true,
        "new": true,
    };
    let reply = db.write(command).await?;
    let stored = reply.get_document("value").map_err(|_| corrupt("the server's answer"))?;
    let updated_at = stored.get_datetime("updated_at").map_err(|_| corrupt("updated_at"))?;
    let updated_at = db.clock.advance(instant(*updated_at));
    Ok(QueueRecord { queue: queue.clone(), config, updated_at })
}

pub(crate) async fn records(db: &Db) -> Step<Vec<QueueRecord>> {
    let read = |error| Failure::of(error, Access::Read);
    let stored = db.beside("queues").find(doc! {}).sort(doc! { "_id": 1 }).await.map_err(read)?;
    let stored: Vec<Document> = stored.try_collect().await.map_err(read)?;
    stored.iter().map(record).collect()
}

fn record(stored: &Document) -> Step<QueueRecord> {
    let config = stored.get_str("config").ok().and_then(|json| serde_json::from_str(json).ok());
    Ok(QueueRecord {
        queue: QueueName::stored(stored.get_str("_id").map_err(|_| corrupt("queue"))?),
        config: config.ok_or_else(|| corrupt("the configuration of a queue"))?,
        updated_at: instant(*stored.get_datetime("updated_at").map_err(|_| corrupt("queue"))?),
    })
}

pub(crate) async fn delete(db: &Db, queue: &QueueName) -> Step<bool> {
    let any = vec![
        doc! { "$match": { "queue": queue.as_str() } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 1 } },
    ];
    if !db.read_recent::<Name>(any).await?.is_empty() {
        return Err(Failure::Answer(StorageError::QueueNotEmpty { queue: queue.clone() }));
    }
    let command = doc! {
        "delete": "queues", "deletes": [{ "q": { "_id": queue.as_str() }, "limit": 1 }],
    };
    let reply = db.write(command).await?;
    Ok(crate::changes::number(&reply, "n") > 0)
}

/// Of those who come at once, the first to insert is whom all others read.
pub(crate) async fn shared_secret(db: &Db, name: &str, candidate: &[u8]) -> Step<Vec<u8>> {
    let command = doc! {
        "findAndModify": "secrets",
        "query": { "_id": name },
        "update": { "$setOnInsert": { "secret": crate::document::binary(candidate) } },
        "upsert": true,
        "new": true,
    };
    let reply = db.write(command).await?;
    match reply.get_document("value").ok().and_then(|stored| stored.get("secret")) {
        Some(Bson::Binary(secret)) => Ok(secret.bytes.clone()),
        _ => Err(corrupt("a secret")),
    }
}
