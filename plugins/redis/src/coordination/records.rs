//! What functions of records take and answer, and the positions of lists. It decides nothing.

use crate::{
    packing::{Packer, Unpacker},
    replies::{Reply, next},
    requests::Args,
};
use bytes::Bytes;
use rdq_spi::{
    CompareAndSet, ListRecords, Position, Record, RecordKey, RecordName, RecordPage, RecordSpace,
    Result, StorageError, Timestamp,
};

/// Above the NUL between a space and a name, and below any text.
const ABOVE_NUL: u8 = 1;

/// What names a record among all.
pub(super) fn field(key: &RecordKey) -> Bytes {
    member(key.space, key.name.as_str()).into()
}

fn member(space: RecordSpace, name: &str) -> Vec<u8> {
    [space.as_str(), "\0", name].concat().into_bytes()
}

/// The three arguments of a change.
pub(super) fn change(change: &CompareAndSet) -> [Bytes; 3] {
    let CompareAndSet { key, value, expected_revision } = change;
    let head = Packer::default().flag(value.is_some()).i64(*expected_revision).done();
    [field(key), head, value.clone().unwrap_or_default()]
}

/// The answer to a change: its revision, or below zero.
pub(super) fn changed(revision: i64, change: &CompareAndSet) -> Result<i64> {
    if revision >= 0 {
        return Ok(revision);
    }
    let CompareAndSet { key, expected_revision, .. } = change;
    let (name, expected_revision) = (key.name.clone(), *expected_revision);
    Err(StorageError::CasConflict { name, expected_revision })
}

/// A record, or none.
#[expect(clippy::option_option, reason = "an answer that cannot be read is not one of none")]
pub(super) fn found(name: &RecordName, reply: Reply) -> Option<Option<Record>> {
    let row = reply.bytes_or_none()?;
    if row.is_empty() {
        return Some(None);
    }
    record(name.clone(), &row).map(Some)
}

fn record(name: RecordName, row: &Bytes) -> Option<Record> {
    let mut from = Unpacker(row);
    let (revision, _made, updated_at): (_, _, Timestamp) =
        (from.i64()?, from.i64()?, from.timestamp()?);
    Some(Record { name, value: row.slice_ref(from.0), revision, updated_at })
}

/// A list, and where a page of it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List {
    space: RecordSpace,
    prefix: String,
    /// What was made after this is not in the list, and the last key before the page; `None` at the
    /// beginning.
    place: Option<(i64, String)>,
}

impl List {
    const VERSION: u8 = 1;

    pub(super) fn of(params: &ListRecords) -> Result<Self> {
        let mut list = Self { space: params.space, prefix: params.prefix.clone(), place: None };
        if let Some(position) = &params.position {
            let place = list.decode(position);
            list.place = Some(place.ok_or(StorageError::InvalidPosition)?);
        }
        Ok(list)
    }

    pub(super) fn args(&self, params: &ListRecords) -> Args {
        let newest = self.place.as_ref().map_or(-1, |(newest, _)| *newest);
        let call = Packer::default().i64(newest).u32(params.limit).len(params.bytes_max);
        let first = match &self.place {
            Some((_, after)) => [&b"("[..], &member(self.space, after)].concat(),
            None => [&b"["[..], &member(self.space, &self.prefix)].concat(),
        };
        let end = [&b"("[..], &self.end()].concat();
        vec![call.done(), first.into(), end.into()]
    }

    /// Above every key of the list, and not above any other that is above those.
    fn end(&self) -> Vec<u8> {
        let mut end = member(self.space, &self.prefix);
        match end.last_mut() {
            Some(last) if !self.prefix.is_empty() => *last += 1, // No byte of text is the last one.
            Some(nul) => *nul = ABOVE_NUL,
            None => unreachable!("a NUL is there"),
        }
        end
    }

    pub(super) fn page(&self, reply: Reply) -> Option<RecordPage> {
        let mut parts = reply.list()?;
        let (newest, more) = (next(&mut parts)?.number()?, next(&mut parts)?.number()?);
        let last = self.name_of(&next(&mut parts)?.bytes()?).map(str::to_owned);
        let mut page = RecordPage::default();
        while let Some(member) = next(&mut parts) {
            let name = RecordName::stored(self.name_of(&member.bytes()?)?);
            page.records.push(record(name, &next(&mut parts)?.bytes()?)?);
        }
        if more == 1 {
            page.next = Some(self.encode(newest, &last?));
        }
        Some(page)
    }

    fn name_of<'a>(&self, member: &'a [u8]) -> Option<&'a str> {
        let name = member.strip_prefix(self.space.as_str().as_bytes())?.strip_prefix(b"\0")?;
        std::str::from_utf8(name).ok()
    }

    fn encode(&self, newest: i64, after: &str) -> Position {
        let mut bytes = self.head();
        bytes.extend(newest.to_be_bytes());
        bytes.extend(after.bytes());
        Position(Bytes::from(bytes))
    }

    /// Reads a position; `None` if it is not one of this list.
    fn decode(&self, Position(bytes): &Position) -> Option<(i64, String)> {
        let rest = bytes.strip_prefix(&self.head()[..])?;
        let (newest, after) = rest.split_first_chunk()?;
        let newest = i64::from_be_bytes(*newest);
        let after = std::str::from_utf8(after).ok()?;
        let is_minted = newest >= 0 && !after.is_empty() && after.starts_with(&self.prefix);
        is_minted.then(|| (newest, after.to_owned()))
    }

    /// What says which list it is.
    fn head(&self) -> Vec<u8> {
        let mut head = vec![Self::VERSION];
        for part in [self.space.as_str(), &self.prefix] {
            head.extend((part.len() as u64).to_be_bytes());
            head.extend(part.as_bytes());
        }
        head
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    fn list(space: RecordSpace, prefix: &str) -> List {
        List { space, prefix: prefix.to_owned(), place: None }
    }

    #[test]
    fn a_position_serves_its_own_list_alone() {
        let own = list(RecordSpace::Caller, "a");
        let position = own.encode(7, "ab");
        assert_eq!(own.decode(&position), Some((7, "ab".to_owned())));
        for other in [
            list(RecordSpace::Schedules, "a"),
            list(RecordSpace::Caller, ""),
            list(RecordSpace::Caller, "ab"),
        ] {
            assert_eq!(other.decode(&position), None);
        }
        for len in 0..position.0.len() - 1 {
            assert_eq!(own.decode(&Position(position.0.slice(..len))), None, "{len}");
        }
    }

    #[test]
    fn the_end_of_a_list_is_above_what_is_in_it_and_nothing_else() {
        for prefix in ["", "a", "a\u{7f}", "ä", "\u{10ffff}"] {
            let list = list(RecordSpace::Caller, prefix);
            let last = member(RecordSpace::Caller, &format!("{prefix}\u{10ffff}"));
            assert!(last < list.end(), "{prefix}");
            assert!(member(RecordSpace::Caller, prefix) < list.end());
            assert!(list.end() <= member(RecordSpace::Schedules, ""), "{prefix}");
        }
        assert!(member(RecordSpace::Caller, "b") >= list(RecordSpace::Caller, "a").end());
    }
}
