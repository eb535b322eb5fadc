//! Streams: events behind a counter that its publisher holds until the commit, and saved offsets.

use crate::errors::{Sql, corrupt};
use bytes::Bytes;
use rdq_spi::{
    ConsumerName, EventKey, NewEvent, ReadFrom, ReadParams, Result, SaveOffset, StreamEvent,
    StreamName, Timestamp, TrimParams, Trimmed,
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use std::collections::HashMap;

/// Appends events, in their order, and answers their offsets.
pub(crate) async fn publish(db: &mut PgConnection, events: &[&NewEvent]) -> Sql<Vec<i64>> {
    let keys = events.iter().map(|event| event.key.as_ref().map(|key| key.as_str().as_bytes()));
    let rows = sqlx::query(include_str!("../queries/publish.sql"))
        .bind(events.iter().map(|event| event.stream.as_str()).collect::<Vec<_>>())
        .bind(keys.collect::<Vec<_>>())
        .bind(events.iter().map(|event| &event.payload[..]).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    if rows.len() != events.len() {
        return Err(corrupt("answer to a publication"));
    }
    rows.iter().map(|row| row.try_get("event_offset")).collect()
}

/// Reads events in the order of their offsets.
pub(crate) async fn read(db: &mut PgConnection, params: &ReadParams) -> Sql<Vec<StreamEvent>> {
    let (offset, consumer) = match &params.from {
        ReadFrom::Offset(offset) => (Some(*offset), None),
        ReadFrom::Consumer(consumer) => (None, Some(consumer.as_str())),
    };
    let rows = sqlx::query(include_str!("../queries/read_events.sql"))
        .bind(params.stream.as_str())
        .bind(offset)
        .bind(consumer)
        .bind(i64::from(params.limit))
        .bind(i64::try_from(params.bytes_max).unwrap_or(i64::MAX))
        .fetch_all(db)
        .await?;
    rows.iter().map(event).collect()
}

fn event(row: &PgRow) -> Sql<StreamEvent> {
    let key = match row.try_get::<Option<&[u8]>, _>("key")? {
        Some(key) => {
            let key = std::str::from_utf8(key).map_err(|_| corrupt("key of an event"))?;
            Some(EventKey::stored(key))
        }
        None => None,
    };
    Ok(StreamEvent {
        offset: row.try_get("event_offset")?,
        key,
        payload: Bytes::copy_from_slice(row.try_get("payload")?),
        created_at: Timestamp::from_millis(row.try_get("created_at")?),
    })
}

/// Saves offsets, none twice of one stream and consumer, and answers what is saved then.
pub(crate) async fn save_offsets(
    db: &mut PgConnection,
    saves: &[&SaveOffset],
) -> Sql<Vec<Result<i64>>> {
    let rows = sqlx::query(include_str!("../queries/save_offsets.sql"))
        .bind(saves.iter().map(|save| save.stream.as_str()).collect::<Vec<_>>())
        .bind(saves.iter().map(|save| save.consumer.as_str()).collect::<Vec<_>>())
        .bind(saves.iter().map(|save| save.offset).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    let saved = rows.iter().map(|row| {
        let key: (&str, &str) = (row.try_get("stream")?, row.try_get("consumer")?);
        Ok((key, row.try_get::<i64, _>("saved")?))
    });
    let saved = saved.collect::<Sql<HashMap<_, _>>>()?;
    let answer = |save: &&SaveOffset| {
        let saved = saved.get(&(save.stream.as_str(), save.consumer.as_str()));
        saved.map(|saved| Ok(*saved)).ok_or_else(|| corrupt("answer to a saved offset"))
    };
    saves.iter().map(answer).collect()
}

/// What a consumer saved; 0 if nothing.
pub(crate) async fn saved_offset(
    db: &mut PgConnection,
    stream: &StreamName,
    consumer: &ConsumerName,
) -> Sql<i64> {
    let row = sqlx::query(include_str!("../queries/saved_offset.sql"))
        .bind(stream.as_str())
        .bind(consumer.as_str())
        .fetch_optional(db)
        .await?;
    row.map_or(Ok(0), |row| row.try_get("saved"))
}

/// One step of removing the oldest events.
pub(crate) async fn trim(db: &mut PgConnection, params: &TrimParams) -> Sql<Trimmed> {
    let row = sqlx::query(include_str!("../queries/trim.sql"))
        .bind(params.stream.as_str())
        .bind(params.horizon)
        .bind(i64::from(params.limit))
        .fetch_one(db)
        .await?;
    let count: i64 = row.try_get("removed")?;
    Ok(Trimmed { count: count.unsigned_abs(), more: row.try_get("more")? })
}
