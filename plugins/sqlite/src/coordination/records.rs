//! Records. Lists go by key; a number of the record's making keeps out what is newer than the list.

use crate::{errors::Sql, reader::Snapshot, rows, statements::text, transaction::Tx};
use bytes::Bytes;
use rdq_spi::{
    CompareAndSet, ListRecords, Position, Record, RecordKey, RecordName, RecordPage, RecordSpace,
    Result, StorageError, Timestamp,
};
use rusqlite::{OptionalExtension as _, params};

/// One call looks at so many records at most; a page that found little ends there.
const EXAMINED_MAX: usize = 10_000;
/// Above the first byte of any text.
const ABOVE_TEXT: u8 = 0xff;

/// Changes a record, and answers its revision.
pub(super) fn compare_and_set(tx: &mut Tx<'_, '_>, change: &CompareAndSet) -> Sql<Result<i64>> {
    let CompareAndSet { key: RecordKey { space, name }, value, expected_revision } = change;
    let (space, key) = (space.as_str(), name.as_str().as_bytes());
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found: Option<(i64, i64, Option<i64>)> =
        tx.sql.coordination.record.query_row(params![space, key], read).optional()?;
    let revision =
        found.filter(|(_, _, made)| made.is_some()).map_or(0, |(_, revision, _)| revision);
    let is_possible = value.is_some() || revision > 0;
    if revision != *expected_revision || !is_possible {
        let (name, expected_revision) = (name.clone(), *expected_revision);
        return Ok(Err(StorageError::CasConflict { name, expected_revision }));
    }
    let now = tx.now.millis();
    let value = value.as_deref();
    match (found, value) {
        (None, _) => {
            let made = tx.next_seq();
            let sql = &mut tx.sql.coordination.insert_record;
            sql.execute(params![space, key, made, now, value])?;
            Ok(Ok(1))
        }
        (Some((record, last, made)), Some(value)) => {
            let made = made.unwrap_or_else(|| tx.next_seq());
            let sql = &mut tx.sql.coordination.put_record;
            sql.execute(params![record, last + 1, made, now, value])?;
            Ok(Ok(last + 1))
        }
        (Some((record, last, _)), None) => {
            tx.sql.coordination.remove_record.execute([record])?;
            Ok(Ok(last))
        }
    }
}

impl Snapshot<'_> {
    /// A record.
    pub(crate) fn record(&self, key: &RecordKey) -> Sql<Option<Record>> {
        let mut sql = self.db.prepare_cached(text!(record_value))?;
        let RecordKey { space, name } = key;
        sql.query_row(params![space.as_str(), name.as_str().as_bytes()], |row| {
            Ok(Record {
                name: name.clone(),
                revision: row.get(0)?,
                updated_at: Timestamp::from_millis(row.get(1)?),
                value: rows::bytes(row, 2)?.unwrap_or_default(),
            })
        })
        .optional()
    }

    /// A page of records.
    pub(crate) fn records(&self, params: &ListRecords) -> Sql<Result<RecordPage>> {
        let ListRecords { space, prefix, position, limit, bytes_max } = params;
        let mut place = match position {
            Some(position) => match Place::decode(*space, prefix, position) {
                Some(place) => place,
                None => return Ok(Err(StorageError::InvalidPosition)),
            },
            None => Place { newest: self.last_number()?, after: None },
        };
        let first = match &place.after {
            // No key is between one and itself with a zero.
            Some(after) => [after.as_bytes(), &[0]].concat(),
            None => prefix.as_bytes().to_vec(),
        };
        let mut sql = self.db.prepare_cached(text!(records))?;
        let mut rows = sql.query(params![space.as_str(), first, end_of(prefix), place.newest])?;
        let (mut records, mut bytes, mut examined) = (Vec::new(), 0, 0);
        while let Some(row) = rows.next()? {
            if records.len() >= *limit as usize || examined >= EXAMINED_MAX {
                return Ok(Ok(place.page(*space, prefix, records)));
            }
            let key = std::str::from_utf8(row.get_ref(0)?.as_blob()?)
                .map_err(|_| crate::errors::corrupt("record's key"))?;
            if row.get::<_, i64>(1)? <= place.newest {
                let value = rows::bytes(row, 4)?.unwrap_or_default();
                bytes += key.len() + value.len();
                if !records.is_empty() && bytes > *bytes_max {
                    return Ok(Ok(place.page(*space, prefix, records)));
                }
                records.push(Record {
                    name: RecordName::stored(key),
                    value,
                    revision: row.get(2)?,
                    updated_at: Timestamp::from_millis(row.get(3)?),
                });
            }
            examined += 1;
            place.after = Some(key.to_owned());
        }
        Ok(Ok(RecordPage { records, next: None }))
    }
}

/// Above every key that starts so, and not above any other that is above those.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    match end.last_mut() {
        // No byte of text is the last one.
        Some(last) => *last += 1,
        None => end.push(ABOVE_TEXT),
    }
    end
}

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// What was made after this is not in the list.
    newest: i64,
    /// The last key before the page.
    after: Option<String>,
}

impl Place {
    const VERSION: u8 = 1;

    /// The page that ends here; there is a next one.
    fn page(&self, space: RecordSpace, prefix: &str, records: Vec<Record>) -> RecordPage {
        let next = Some(self.encode(space, prefix));
        RecordPage { records, next }
    }

    fn encode(&self, space: RecordSpace, prefix: &str) -> Position {
        let mut bytes = head_of(space, prefix);
        bytes.extend(self.newest.to_be_bytes());
        bytes.extend(self.after.iter().flat_map(|after| after.bytes()));
        Position(Bytes::from(bytes))
    }

    /// Reads a position; `None` if it is not one of this list.
    fn decode(space: RecordSpace, prefix: &str, Position(bytes): &Position) -> Option<Self> {
        let rest = bytes.strip_prefix(&head_of(space, prefix)[..])?;
        let (newest, after) = rest.split_first_chunk()?;
        let newest = i64::from_be_bytes(*newest);
        let after = std::str::from_utf8(after).ok()?;
        let is_minted = newest >= 0 && !after.is_empty() && after.starts_with(prefix);
        is_minted.then(|| Self { newest, after: Some(after.to_owned()) })
    }
}

/// What says which list it is.
fn head_of(space: RecordSpace, prefix: &str) -> Vec<u8> {
    let mut head = vec![Place::VERSION];
    for part in [space.as_str(), prefix] {
        head.extend((part.len() as u64).to_be_bytes());
        head.extend(part.as_bytes());
    }
    head
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[test]
    fn a_position_serves_its_own_list_alone() {
        let place = Place { newest: 7, after: Some("ab".into()) };
        let position = place.encode(RecordSpace::Caller, "a");
        let decode = Place::decode;
        assert_eq!(decode(RecordSpace::Caller, "a", &position), Some(place));
        assert_eq!(decode(RecordSpace::Schedules, "a", &position), None);
        assert_eq!(decode(RecordSpace::Caller, "", &position), None);
        assert_eq!(decode(RecordSpace::Caller, "ab", &position), None);
        for len in 0..position.0.len() - 1 {
            let cut = Position(position.0.slice(..len));
            assert_eq!(decode(RecordSpace::Caller, "a", &cut), None, "{len}");
        }
    }

    #[test]
    fn the_end_of_a_prefix_is_above_what_starts_so_and_nothing_else() {
        for prefix in ["a", "a\u{7f}", "ä", "\u{10ffff}"] {
            let end = end_of(prefix);
            assert!(format!("{prefix}\u{10ffff}").as_bytes() < &end[..], "{prefix}");
            assert!(prefix.as_bytes() < &end[..]);
        }
        assert!("b".as_bytes() >= &end_of("a")[..]);
        assert!("\u{10ffff}".as_bytes() < &end_of("")[..]);
    }
}
