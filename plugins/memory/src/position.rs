//! Positions of lists. A list runs from its newest entry down a sequence that only grows, so the
//! number where a page stopped is the high-water mark as well: what enters later is above it.

use crate::token::RunId;
use bytes::Bytes;
use rdq_spi::{Position, QueueName, Result, StorageError};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Which list a position is of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum List {
    /// Tasks, by admission.
    Tasks = 1,
    /// Dead letters, by death.
    Dead = 2,
}

const LEN: usize = 1 + 8 + 8 + 8;

/// The position below `bound`.
pub(crate) fn mint(run: RunId, list: List, queue: &QueueName, bound: u64) -> Position {
    let mut bytes = [0; LEN];
    bytes[..17].copy_from_slice(&prefix(run, list, queue));
    bytes[17..].copy_from_slice(&bound.to_be_bytes());
    Position(Bytes::copy_from_slice(&bytes))
}

/// The bound that the position names; everything without one.
pub(crate) fn read(
    run: RunId,
    list: List,
    queue: &QueueName,
    position: Option<&Position>,
) -> Result<u64> {
    let Some(position) = position else { return Ok(u64::MAX) };
    let bound = position.0.strip_prefix(&prefix(run, list, queue)[..]);
    let bound = bound.and_then(|bytes| bytes.try_into().ok());
    bound.map(u64::from_be_bytes).ok_or(StorageError::InvalidPosition)
}

fn prefix(run: RunId, list: List, queue: &QueueName) -> [u8; 17] {
    let mut hasher = DefaultHasher::new();
    queue.hash(&mut hasher);
    let mut bytes = [0; 17];
    bytes[0] = list as u8;
    bytes[1..9].copy_from_slice(&run.bytes());
    bytes[9..].copy_from_slice(&hasher.finish().to_be_bytes());
    bytes
}

/// One call reads at most so many entries; a page that found little ends there.
const READ_MAX: usize = 10_000;

/// Reads `(sequence, task)` entries, newest first, until `limit` items or `bytes_max` are found or
/// [`READ_MAX`] entries are read. `read` answers an item and its weight, or nothing for an entry
/// that does not match. The second answer is the bound of the rest, if there is one.
pub(crate) fn scan<T>(
    entries: impl Iterator<Item = (u64, u64)>,
    limit: u32,
    bytes_max: usize,
    mut read: impl FnMut(u64) -> Option<(T, usize)>,
) -> (Vec<T>, Option<u64>) {
    let mut found = Vec::new();
    let (mut bytes, mut last) = (0, None);
    for (index, (sequence, task)) in entries.enumerate() {
        if found.len() >= limit as usize || index == READ_MAX {
            return (found, last);
        }
        if let Some((item, weight)) = read(task) {
            bytes += weight;
            if bytes > bytes_max && !found.is_empty() {
                return (found, last);
            }
            found.push(item);
        }
        last = Some(sequence);
    }
    (found, None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_of_one_list_of_one_queue_of_one_store() {
        let (run, a) = (RunId::random(), QueueName::new("a").unwrap());
        let position = mint(run, List::Tasks, &a, 7);
        assert_eq!(read(run, List::Tasks, &a, Some(&position)).unwrap(), 7);
        assert_eq!(read(run, List::Tasks, &a, None).unwrap(), u64::MAX);

        let b = QueueName::new("b").unwrap();
        let longer = Position([&position.0[..], b"x"].concat().into());
        for result in [
            read(RunId::random(), List::Tasks, &a, Some(&position)),
            read(run, List::Dead, &a, Some(&position)),
            read(run, List::Tasks, &b, Some(&position)),
            read(run, List::Tasks, &a, Some(&longer)),
            read(run, List::Tasks, &a, Some(&Position(Bytes::new()))),
        ] {
            assert!(matches!(result, Err(StorageError::InvalidPosition)), "{result:?}");
        }
    }

    #[test]
    fn a_scan_ends_at_its_bounds_and_says_where() {
        let entries = || (0..5_u64).rev().map(|sequence| (sequence, sequence));
        let all = |task| Some((task, 10));
        assert_eq!(scan(entries(), 9, usize::MAX, all), (vec![4, 3, 2, 1, 0], None));
        assert_eq!(scan(entries(), 5, usize::MAX, all), (vec![4, 3, 2, 1, 0], None));
        assert_eq!(scan(entries(), 2, usize::MAX, all), (vec![4, 3], Some(3)));
        assert_eq!(scan(entries(), 9, 20, all), (vec![4, 3], Some(3)));
        assert_eq!(scan(entries(), 9, 0, all), (vec![4], Some(4)));
        assert_eq!(scan(entries(), 9, 0, |_| None::<((), usize)>), (vec![], None));

        let many = (0..20_000_u64).rev().map(|sequence| (sequence, sequence));
        assert_eq!(scan(many, 9, 0, |_| None::<((), usize)>), (vec![], Some(10_000)));
    }
}
