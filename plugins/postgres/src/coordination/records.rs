//! Records: values under keys, by compare-and-set; and the positions of their lists.

use crate::{
    errors::{Sql, corrupt},
    token::StoreId,
};
use bytes::Bytes;
use rdq_spi::{
    CompareAndSet, ListRecords, Position, Record, RecordKey, RecordName, RecordPage, RecordSpace,
    Result, StorageError, Timestamp,
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use std::collections::HashMap;

/// What a position of this list begins with; other lists have other numbers.
const LIST: u8 = 3;
/// More characters than a key has, each of 4 bytes.
const KEY_CHARS_MAX: usize = 64;

/// Reads a record.
pub(crate) async fn get(db: &mut PgConnection, key: &RecordKey) -> Sql<Option<Record>> {
    let row = sqlx::query(include_str!("../queries/get_record.sql"))
        .bind(key.space.as_str())
        .bind(key.name.as_str())
        .fetch_optional(db)
        .await?;
    row.as_ref().map(record).transpose()
}

fn record(row: &PgRow) -> Sql<Record> {
    Ok(Record {
        name: RecordName::stored(row.try_get::<&str, _>("name")?),
        value: Bytes::copy_from_slice(row.try_get("value")?),
        revision: row.try_get("revision")?,
        updated_at: Timestamp::from_millis(row.try_get("updated_at")?),
    })
}

/// Changes records, none twice, and answers their revisions.
pub(crate) async fn compare_and_set(
    db: &mut PgConnection,
    changes: &[&CompareAndSet],
) -> Sql<Vec<Result<i64>>> {
    let rows = sqlx::query(include_str!("../queries/compare_and_set.sql"))
        .bind(changes.iter().map(|change| change.key.space.as_str()).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.key.name.as_str()).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.value.as_deref()).collect::<Vec<_>>())
        .bind(changes.iter().map(|change| change.expected_revision).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    let changed = rows.iter().map(|row| {
        let key: (&str, &str) = (row.try_get("space")?, row.try_get("name")?);
        Ok((key, row.try_get::<i64, _>("revision")?))
    });
    let changed = changed.collect::<Sql<HashMap<_, _>>>()?;
    let answer = |change: &&CompareAndSet| {
        let CompareAndSet { key, expected_revision, value: _ } = change;
        let revision = changed.get(&(key.space.as_str(), key.name.as_str())).copied();
        revision.ok_or_else(|| StorageError::CasConflict {
            name: key.name.clone(),
            expected_revision: *expected_revision,
        })
    };
    Ok(changes.iter().map(answer).collect())
}

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// The newest record of when the list began.
    newest: i64,
    /// The last key of the page before.
    after: String,
}

/// Lists records by key.
pub(crate) async fn list(
    db: &mut PgConnection,
    store_id: StoreId,
    params: &ListRecords,
    place: Option<&Place>,
) -> Sql<RecordPage> {
    let rows = sqlx::query(include_str!("../queries/list_records.sql"))
        .bind(params.space.as_str())
        .bind(&params.prefix)
        .bind(place.map(|place| place.after.as_str()))
        .bind(end_of(&params.prefix))
        .bind(place.map(|place| place.newest))
        .bind(i64::from(params.limit))
        .bind(i64::try_from(params.bytes_max).unwrap_or(i64::MAX))
        .fetch_all(db)
        .await?;
    let mut page = RecordPage::default();
    for row in &rows {
        match row.try_get::<Option<bool>, _>("is_beyond")? {
            Some(false) => page.records.push(record(row)?),
            Some(true) => {
                let last = page.records.last().ok_or_else(|| corrupt("page of records"))?;
                let (newest, after) = (row.try_get("newest")?, last.name.as_str().to_owned());
                page.next = Some(encode(store_id, params.space, &Place { newest, after }));
                break;
            }
            // There is none.
            None => {}
        }
    }
    Ok(page)
}

/// A text behind all keys that start so.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    while let Some(last) = end.pop() {
        // Behind the last character below the surrogates comes the first above them.
        let next = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
        if let Some(next) = next {
            end.push(next);
            return end;
        }
    }
    // Behind any key: none is as long.
    char::MAX.to_string().repeat(KEY_CHARS_MAX)
}

fn head(store_id: StoreId, space: RecordSpace) -> Vec<u8> {
    let space = match space {
        RecordSpace::Caller => 0,
        RecordSpace::Schedules => 1,
    };
    [&[LIST, space], &store_id.0[..]].concat()
}

fn encode(store_id: StoreId, space: RecordSpace, place: &Place) -> Position {
    let Place { newest, after } = place;
    let bytes = [&head(store_id, space)[..], &newest.to_be_bytes(), after.as_bytes()].concat();
    Position(bytes.into())
}

/// The place that a position stands for, if it is one of this list.
pub(crate) fn decode(
    store_id: StoreId,
    space: RecordSpace,
    position: Option<&Position>,
) -> Result<Option<Place>> {
    let Some(Position(bytes)) = position else { return Ok(None) };
    let read = || {
        let rest = bytes.strip_prefix(&head(store_id, space)[..])?;
        let (newest, after) = rest.split_first_chunk()?;
        // No key holds NUL, which the database would not take.
        let after = std::str::from_utf8(after).ok().filter(|after| !after.contains('\0'))?;
        Some(Place { newest: i64::from_be_bytes(*newest), after: after.to_owned() })
    };
    read().map(Some).ok_or(StorageError::InvalidPosition)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_behind_all_that_start_so() {
        for (prefix, end) in
            [("a", "b"), ("a/", "a0"), ("é", "ê"), ("\u{d7ff}", "\u{e000}"), ("a\u{10ffff}", "b")]
        {
            assert_eq!(end_of(prefix), end, "{prefix:?}");
        }
        let last = char::MAX.to_string().repeat(60);
        for prefix in ["", "\u{10ffff}"] {
            assert!(end_of(prefix) > last && RecordName::new(&last).is_ok(), "{prefix:?}");
        }
    }

    #[test]
    fn a_position_serves_its_own_list_of_its_own_store_alone() {
        let (store, other) = (StoreId(*b"01234567"), StoreId(*b"01234568"));
        let place = Place { newest: 7, after: "key".into() };
        let position = encode(store, RecordSpace::Caller, &place);
        let read = |store, space| decode(store, space, Some(&position));
        assert_eq!(read(store, RecordSpace::Caller).unwrap(), Some(place));
        assert_eq!(decode(store, RecordSpace::Caller, None).unwrap(), None);
        for (store, space) in [(other, RecordSpace::Caller), (store, RecordSpace::Schedules)] {
            let error = read(store, space).unwrap_err();
            assert!(matches!(error, StorageError::InvalidPosition), "{error:?}");
        }
    }
}
