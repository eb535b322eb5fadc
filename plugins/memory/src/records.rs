//! Records: values under keys, by compare-and-set.

use crate::{admission::detach, state::State, undo::Undo};
use bytes::Bytes;
use rdq_spi::{
    CompareAndSet, ListRecords, Position, Record, RecordKey, RecordPage, RecordSpace, Result,
    StorageError, Timestamp,
};
use std::ops::Bound::{Excluded, Included, Unbounded};

/// A record, or what is left of a removed one: its revision, from which the next one goes on.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    revision: i64,
    /// The value, if it is there: set then, made as the so-manieth record.
    value: Option<(Bytes, Timestamp, u64)>,
}

impl State {
    pub(crate) fn get_record(&self, key: &RecordKey) -> Option<Record> {
        let Slot { revision, value } = self.slots.get(key)?;
        let (value, updated_at, _) = value.clone()?;
        Some(Record { name: key.name.clone(), value, revision: *revision, updated_at })
    }

    pub(crate) fn compare_and_set(&mut self, set: CompareAndSet, now: Timestamp) -> Result<i64> {
        let CompareAndSet { key, value, expected_revision } = set;
        let before = self.slots.get(&key);
        let made = before.and_then(|slot| slot.value.as_ref()).map(|(_, _, made)| *made);
        let last = before.map_or(0, |slot| slot.revision);
        if expected_revision != if made.is_some() { last } else { 0 } {
            return Err(StorageError::CasConflict { name: key.name, expected_revision });
        }
        let slot = match value {
            Some(mut value) => {
                detach(&mut value);
                let made = made.unwrap_or_else(|| self.counters.next_record());
                Slot { revision: last + 1, value: Some((value, now, made)) }
            }
            None => Slot { revision: last, value: None },
        };
        let revision = slot.revision;
        let before = self.slots.insert(key.clone(), slot);
        self.undo.note(|| Undo::Record(key, before));
        Ok(revision)
    }

    /// By key; a position holds the newest record of the first page and the last key of its own.
    pub(crate) fn list_records(&self, params: &ListRecords) -> Result<RecordPage> {
        let (newest, after) = match &params.position {
            Some(position) => self.read_position(params.space, position)?,
            None => (self.counters.records(), None),
        };
        let key = |name: String| RecordKey {
            space: params.space,
            name: rdq_spi::RecordName::stored(name),
        };
        let from = match after {
            Some(after) if after >= params.prefix => Excluded(key(after)),
            _ => Included(key(params.prefix.clone())),
        };
        let slots = self.slots.range((from, Unbounded)).take_while(|(key, _)| {
            key.space == params.space && key.name.as_str().starts_with(&params.prefix)
        });
        let mut page = RecordPage::default();
        let mut bytes = 0;
        for (key, slot) in slots {
            let Some((value, updated_at, made)) = &slot.value else { continue };
            if *made > newest {
                continue;
            }
            bytes += key.name.as_str().len() + value.len();
            let is_full = page.records.len() == params.limit as usize || bytes > params.bytes_max;
            if let Some(last) = page.records.last().filter(|_| is_full) {
                page.next = Some(self.mint_position(params.space, newest, last.name.as_str()));
                break;
            }
            page.records.push(Record {
                name: key.name.clone(),
                value: value.clone(),
                revision: slot.revision,
                updated_at: *updated_at,
            });
        }
        Ok(page)
    }

    fn mint_position(&self, space: RecordSpace, newest: u64, after: &str) -> Position {
        let head = self.position_head(space);
        Position([&head[..], &newest.to_be_bytes(), after.as_bytes()].concat().into())
    }

    fn read_position(
        &self,
        space: RecordSpace,
        position: &Position,
    ) -> Result<(u64, Option<String>)> {
        let read = || {
            let rest = position.0.strip_prefix(&self.position_head(space)[..])?;
            let (newest, after) = rest.split_first_chunk()?;
            let after = std::str::from_utf8(after).ok()?;
            Some((u64::from_be_bytes(*newest), Some(after.to_owned())))
        };
        read().ok_or(StorageError::InvalidPosition)
    }

    fn position_head(&self, space: RecordSpace) -> [u8; 10] {
        let mut head = [0; 10];
        (head[0], head[1]) = (3, space as u8);
        head[2..].copy_from_slice(&self.run.bytes());
        head
    }
}
