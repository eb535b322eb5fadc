//! Positions of keyset pages, for storages whose lists are ordered by one number. All lists run from the newest to the oldest by a number that only
//! grows, so one number says where to go on, and what is newer than the first page never comes.

use crate::{Position, QueueName, StorageError};
use bytes::Bytes;

const VERSION: u8 = 1;

/// Which list a position belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Tasks by admission.
    Tasks = 1,
    /// Dead letters by death.
    DeadLetters = 2,
}

/// The number that the page stays below; above all numbers if there is no position.
pub fn decode(
    list: List,
    queue: &QueueName,
    position: Option<&Position>,
) -> Result<i64, StorageError> {
    let Some(Position(bytes)) = position else { return Ok(i64::MAX) };
    bytes
        .split_last_chunk()
        .map(|(head, before)| (head, i64::from_be_bytes(*before)))
        .filter(|(head, before)| *head == head_of(list, queue) && *before >= 0)
        .map(|(_, before)| before)
        .ok_or(StorageError::InvalidPosition)
}

/// The position of a page below this number.
pub fn encode(list: List, queue: &QueueName, before: i64) -> Position {
    let mut bytes = head_of(list, queue);
    bytes.extend(before.to_be_bytes());
    Position(Bytes::from(bytes))
}

fn head_of(list: List, queue: &QueueName) -> Vec<u8> {
    [&[VERSION, list as u8], queue.as_str().as_bytes()].concat()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;

    #[test]
    fn a_position_serves_its_own_list_alone() {
        let (a, b) = (QueueName::new("a").unwrap(), QueueName::new("b").unwrap());
        let position = encode(List::Tasks, &a, 7);
        assert_eq!(decode(List::Tasks, &a, Some(&position)).unwrap(), 7);
        assert_eq!(decode(List::Tasks, &a, None).unwrap(), i64::MAX);
        for (list, queue, bytes) in [
            (List::DeadLetters, &a, position.0.clone()),
            (List::Tasks, &b, position.0.clone()),
            (List::Tasks, &a, position.0.slice(1..)),
            (List::Tasks, &a, Bytes::new()),
            (List::Tasks, &a, [&position.0[..], b"x"].concat().into()),
        ] {
            let error = decode(list, queue, Some(&Position(bytes))).unwrap_err();
            assert!(matches!(error, StorageError::InvalidPosition));
        }
    }
}
