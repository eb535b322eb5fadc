//! Attempts as bytes. A record is one blob that every reader wants, and a heavy one (stack and
//! detail) that only whole histories show. Pure.

use crate::errors::{Sql, corrupt};
use bytes::Bytes;
use rdq_spi::{Attempt, AttemptError, AttemptOutcome, Timestamp, WorkerId};

const VERSION: u8 = 1;
const STARTED: u8 = 1;
const FINISHED: u8 = 2;
const WORKER: u8 = 4;
const ERROR: u8 = 8;
const EXTRA: u8 = 16;
const FOLDED: u8 = 32;

/// The record without stack and detail.
pub(crate) fn encode(attempt: &Attempt) -> Vec<u8> {
    let mut flags = 0;
    let mut bytes = Vec::with_capacity(64);
    bytes.extend([VERSION, 0, attempt.outcome.map_or(0, AttemptOutcome::number)]);
    bytes.extend(attempt.attempt_no.to_le_bytes());
    for (flag, at) in [(STARTED, attempt.started_at), (FINISHED, attempt.finished_at)] {
        if let Some(at) = at {
            flags |= flag;
            bytes.extend(at.millis().to_le_bytes());
        }
    }
    if let Some(worker) = &attempt.worker_id {
        flags |= WORKER;
        put(&mut bytes, worker.as_str().as_bytes());
    }
    if let Some(error) = &attempt.error {
        flags |= ERROR;
        put(&mut bytes, error.error_type.as_bytes());
        put(&mut bytes, error.message.as_bytes());
    }
    if !attempt.extra.is_empty() {
        flags |= EXTRA;
        put(&mut bytes, &attempt.extra);
    }
    if attempt.folded_count > 0 {
        flags |= FOLDED;
        bytes.extend(attempt.folded_count.to_le_bytes());
    }
    bytes[1] = flags;
    bytes
}

/// Stack and detail, if there are any.
pub(crate) fn encode_heavy(attempt: &Attempt) -> Option<Vec<u8>> {
    let error = attempt.error.as_ref()?;
    if error.stack.is_empty() && error.detail.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(8 + error.stack.len() + error.detail.len());
    put(&mut bytes, error.detail.as_bytes());
    put(&mut bytes, error.stack.as_bytes());
    Some(bytes)
}

/// Reads a record, with its heavy part where that was asked for.
pub(crate) fn decode(record: &[u8], heavy: Option<&[u8]>) -> Sql<Attempt> {
    read(record, heavy).ok_or_else(|| corrupt("attempt"))
}

fn read(record: &[u8], heavy: Option<&[u8]>) -> Option<Attempt> {
    let mut from = Reader(record);
    let [version, flags, outcome] = from.array()?;
    if version != VERSION {
        return None;
    }
    let has = |flag| flags & flag != 0;
    let mut attempt = Attempt {
        attempt_no: u32::from_le_bytes(from.array()?),
        started_at: from.when(has(STARTED), Reader::timestamp)?,
        finished_at: from.when(has(FINISHED), Reader::timestamp)?,
        outcome: if outcome == 0 { None } else { Some(AttemptOutcome::of_number(outcome)?) },
        worker_id: from.when(has(WORKER), Reader::text)?.map(WorkerId::stored),
        error: None,
        extra: Bytes::new(),
        folded_count: 0,
    };
    if has(ERROR) {
        attempt.error = Some(AttemptError::new(from.text()?, from.text()?));
    }
    if has(EXTRA) {
        attempt.extra = Bytes::copy_from_slice(from.block()?);
    }
    if has(FOLDED) {
        attempt.folded_count = u32::from_le_bytes(from.array()?);
    }
    if let Some(heavy) = heavy {
        let mut from = Reader(heavy);
        let error = attempt.error.as_mut()?;
        error.detail = from.text()?;
        error.stack = from.text()?;
    }
    Some(attempt)
}

fn put(bytes: &mut Vec<u8>, block: &[u8]) {
    let len = u32::try_from(block.len()).expect("an attempt's text is far below 4 GiB");
    bytes.extend(len.to_le_bytes());
    bytes.extend(block);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn block(&mut self) -> Option<&'a [u8]> {
        let len = u32::from_le_bytes(self.array()?) as usize;
        let (block, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(block)
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.block()?.to_vec()).ok()
    }

    fn timestamp(&mut self) -> Option<Timestamp> {
        Some(Timestamp::from_millis(i64::from_le_bytes(self.array()?)))
    }

    /// Reads what is there; the outer `None` is a record that cannot be read.
    #[allow(clippy::option_option, reason = "absent and unreadable differ")]
    fn when<T>(
        &mut self,
        present: bool,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if present { read(self).map(Some) } else { Some(None) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn full() -> Attempt {
        Attempt {
            attempt_no: u32::MAX,
            started_at: Some(Timestamp::MIN),
            finished_at: Some(Timestamp::MAX),
            outcome: Some(AttemptOutcome::Cancelled),
            worker_id: Some(WorkerId::stored("w")),
            error: Some(AttemptError {
                error_type: "t".into(),
                message: "mé".into(),
                detail: "d".into(),
                stack: "s".repeat(1_000),
            }),
            extra: Bytes::from_static(b"\0\xff"),
            folded_count: 3,
        }
    }

    fn bare() -> Attempt {
        Attempt {
            attempt_no: 1,
            started_at: None,
            finished_at: None,
            outcome: None,
            worker_id: None,
            error: None,
            extra: Bytes::new(),
            folded_count: 0,
        }
    }

    #[test]
    fn an_attempt_comes_back_as_it_was() {
        for attempt in [full(), bare(), Attempt { error: Some(AttemptError::default()), ..bare() }]
        {
            let (record, heavy) = (encode(&attempt), encode_heavy(&attempt));
            assert_eq!(decode(&record, heavy.as_deref()).unwrap(), attempt);
        }
    }

    #[test]
    fn without_its_heavy_part_it_has_neither_stack_nor_detail() {
        let light = decode(&encode(&full()), None).unwrap().error.unwrap();
        assert_eq!((light.stack.as_str(), light.detail.as_str()), ("", ""));
        assert_eq!(light.message, "mé");
    }

    #[test]
    fn damaged_records_are_errors() {
        let record = encode(&full());
        for len in 0..record.len() {
            assert!(decode(&record[..len], None).is_err(), "{len}");
        }
        assert!(decode(&[9; 40], None).is_err());
    }
}
