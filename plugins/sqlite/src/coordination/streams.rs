//! Streams. Publishers of one transaction share one write of each stream's counter.

use crate::{errors::Sql, reader::Snapshot, rows, statements::text, transaction::Tx};
use rdq_spi::{
    ConsumerName, EventKey, NewEvent, ReadFrom, ReadParams, SaveOffset, StreamEvent, StreamName,
    Timestamp, TrimParams, Trimmed,
};
use rusqlite::{OptionalExtension as _, Row, params};

/// A stream as a write transaction knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counter {
    /// The stream's number.
    stream: i64,
    /// The last offset that an event got.
    last: i64,
    /// Whether the row says otherwise.
    is_ahead: bool,
}

impl Counter {
    /// Reads it: the stream's number, and its last offset.
    pub(super) fn read(row: &Row<'_>) -> Sql<Self> {
        Ok(Self { stream: row.get(0)?, last: row.get(1)?, is_ahead: false })
    }

    /// The last offset that an event got.
    pub(super) fn last(self) -> i64 {
        self.last
    }
}

impl Tx<'_, '_> {
    /// The stream, if it exists.
    fn find_stream(&mut self, name: &StreamName) -> Sql<Option<&mut Counter>> {
        // Looked up twice, which the borrow of an answer to be returned asks for.
        if !self.streams.contains_key(name) {
            let stream = &mut self.sql.coordination.stream;
            let Some(found) = stream.query_row([name.as_str()], Counter::read).optional()? else {
                return Ok(None);
            };
            self.streams.insert(name.clone(), found);
        }
        Ok(self.streams.get_mut(name))
    }

    /// The stream; it exists from now on.
    fn stream(&mut self, name: &StreamName) -> Sql<&mut Counter> {
        if self.find_stream(name)?.is_none() {
            let insert = &mut self.sql.coordination.insert_stream;
            let stream = insert.query_row([name.as_str()], |row| row.get(0))?;
            self.streams.insert(name.clone(), Counter { stream, last: 0, is_ahead: false });
        }
        self.find_stream(name)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Writes the counters that moved.
    pub(crate) fn put_last_offsets(&mut self) -> Sql<()> {
        for counter in self.streams.values_mut().filter(|counter| counter.is_ahead) {
            let put = &mut self.sql.coordination.put_last_offset;
            put.execute([counter.stream, counter.last])?;
            counter.is_ahead = false;
        }
        Ok(())
    }
}

/// Appends an event.
pub(super) fn publish(tx: &mut Tx<'_, '_>, event: &NewEvent) -> Sql<i64> {
    let NewEvent { stream: name, key, payload } = event;
    let counter = tx.stream(name)?;
    counter.last += 1;
    counter.is_ahead = true;
    let Counter { stream, last: offset, .. } = *counter;
    let key = key.as_ref().map(|key| key.as_str().as_bytes());
    let insert = &mut tx.sql.coordination.insert_event;
    insert.execute(params![stream, offset, tx.now.millis(), key, &payload[..]])?;
    tx.news.published(name, offset);
    Ok(offset)
}

/// Saves what a consumer has read up to, and answers what is saved.
pub(super) fn save_offset(tx: &mut Tx<'_, '_>, save: &SaveOffset) -> Sql<i64> {
    let SaveOffset { stream, consumer, offset } = save;
    let stream = tx.stream(stream)?.stream;
    let sql = &mut tx.sql.coordination.save_offset;
    sql.query_row(params![stream, consumer.as_str(), offset], |row| row.get(0))
}

/// Removes the oldest events.
pub(super) fn trim(tx: &mut Tx<'_, '_>, params: &TrimParams) -> Sql<Trimmed> {
    let TrimParams { stream, horizon, limit } = params;
    let Some(counter) = tx.find_stream(stream)? else { return Ok(Trimmed::default()) };
    let stream = counter.stream;
    let count = tx.sql.coordination.trim.execute(params![stream, horizon, limit])? as u64;
    Ok(Trimmed { count, more: count >= u64::from(*limit) })
}

impl Snapshot<'_> {
    /// Events, in their order.
    pub(crate) fn read(&self, params: &ReadParams) -> Sql<Vec<StreamEvent>> {
        let ReadParams { stream, from, limit, bytes_max } = params;
        let Some(found) = self.stream(stream)? else { return Ok(Vec::new()) };
        let after = match from {
            ReadFrom::Offset(offset) => *offset,
            ReadFrom::Consumer(consumer) => self.saved_offset(found, consumer)?,
        };
        let mut sql = self.db.prepare_cached(text!(events))?;
        let mut rows = sql.query([found.stream, after])?;
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < *limit as usize
            && let Some(row) = rows.next()?
        {
            let event = read_event(row)?;
            bytes += event.payload.len();
            bytes += event.key.as_ref().map_or(0, |key| key.as_str().len());
            if !events.is_empty() && bytes > *bytes_max {
                break;
            }
            events.push(event);
        }
        Ok(events)
    }

    /// What the consumer saved.
    pub(crate) fn offset(&self, stream: &StreamName, consumer: &ConsumerName) -> Sql<i64> {
        match self.stream(stream)? {
            Some(found) => self.saved_offset(found, consumer),
            None => Ok(0),
        }
    }

    /// The stream, if it exists.
    pub(super) fn stream(&self, name: &StreamName) -> Sql<Option<Counter>> {
        let mut sql = self.db.prepare_cached(text!(stream))?;
        sql.query_row([name.as_str()], Counter::read).optional()
    }

    fn saved_offset(&self, of: Counter, consumer: &ConsumerName) -> Sql<i64> {
        let mut sql = self.db.prepare_cached(text!(saved_offset))?;
        let saved = sql.query_row(params![of.stream, consumer.as_str()], |row| row.get(0));
        Ok(saved.optional()?.unwrap_or(0))
    }
}

fn read_event(row: &Row<'_>) -> Sql<StreamEvent> {
    let key = row.get_ref(2)?.as_blob_or_null()?.map(std::str::from_utf8);
    let key = key.transpose().map_err(|_| crate::errors::corrupt("event's key"))?;
    Ok(StreamEvent {
        offset: row.get(0)?,
        key: key.map(EventKey::stored),
        payload: rows::bytes(row, 3)?.unwrap_or_default(),
        created_at: Timestamp::from_millis(row.get(1)?),
    })
}
