//! Attempts as bytes: a light part that every reader wants, and a heavy one (detail and stack) that
//! only whole histories show. `functions/history.lua` reads and writes the same. Pure.

use crate::packing::{Packer, Unpacker};
use bytes::Bytes;
use rdq_spi::{Attempt, AttemptError, AttemptOutcome, AttemptReport, Timestamp, WorkerId};

const STARTED: u8 = 1;
const ENDED: u8 = 2;
const WORKER: u8 = 4;
const ERROR: u8 = 8;

/// The record without stack and detail.
pub(crate) fn light(attempt: &Attempt) -> Bytes {
    let mut flags = 0;
    for (flag, is_set) in [
        (STARTED, attempt.started_at.is_some()),
        (ENDED, attempt.finished_at.is_some()),
        (WORKER, attempt.worker_id.is_some()),
        (ERROR, attempt.error.is_some()),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    let head = Packer::default()
        .u32(attempt.attempt_no)
        .i64(attempt.started_at.map_or(0, Timestamp::millis))
        .i64(attempt.finished_at.map_or(0, Timestamp::millis))
        .u8(attempt.outcome.map_or(0, AttemptOutcome::number))
        .u8(flags)
        .u32(attempt.folded_count)
        .name(attempt.worker_id.as_ref().map_or("", WorkerId::as_str));
    text(head, attempt.error.as_ref(), &attempt.extra).done()
}

/// What a worker reports, as the end of a light part.
pub(crate) fn report_light(report: &AttemptReport) -> Bytes {
    text(Packer::default(), report.error.as_ref(), &report.extra).done()
}

fn text(packer: Packer, error: Option<&AttemptError>, extra: &[u8]) -> Packer {
    let (error_type, message) =
        error.map_or(("", ""), |error| (error.error_type.as_str(), error.message.as_str()));
    packer.block(error_type.as_bytes()).block(message.as_bytes()).block(extra)
}

/// Stack and detail; nothing if there are none.
pub(crate) fn heavy(error: Option<&AttemptError>) -> Bytes {
    match error {
        Some(error) if !error.stack.is_empty() || !error.detail.is_empty() => {
            Packer::default().block(error.detail.as_bytes()).block(error.stack.as_bytes()).done()
        }
        _ => Bytes::new(),
    }
}

/// Reads a record, with its heavy part where there is one.
pub(crate) fn decode(light: &[u8], heavy: &[u8]) -> Option<Attempt> {
    let mut from = Unpacker(light);
    let attempt_no = from.u32()?;
    let (started_at, finished_at) = (from.timestamp()?, from.timestamp()?);
    let outcome = from.u8()?;
    let flags = from.u8()?;
    let has = |flag| flags & flag != 0;
    let folded_count = from.u32()?;
    let worker = from.name()?;
    let (error_type, message) = (from.text()?, from.text()?);
    let extra = Bytes::copy_from_slice(from.block()?);
    let mut error = has(ERROR).then(|| AttemptError::new(error_type, message));
    if !heavy.is_empty() {
        let mut from = Unpacker(heavy);
        let error = error.as_mut()?;
        error.detail = from.text()?;
        error.stack = from.text()?;
    }
    from.is_empty().then_some(())?;
    Some(Attempt {
        attempt_no,
        started_at: has(STARTED).then_some(started_at),
        finished_at: has(ENDED).then_some(finished_at),
        outcome: if outcome == 0 { None } else { Some(AttemptOutcome::of_number(outcome)?) },
        worker_id: has(WORKER).then(|| WorkerId::stored(worker)),
        error,
        extra,
        folded_count,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
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
            let (light, heavy) = (light(&attempt), heavy(attempt.error.as_ref()));
            assert_eq!(decode(&light, &heavy).unwrap(), attempt);
        }
    }

    #[test]
    fn without_its_heavy_part_it_has_neither_stack_nor_detail() {
        let light = decode(&light(&full()), &[]).unwrap().error.unwrap();
        assert_eq!((light.stack.as_str(), light.detail.as_str()), ("", ""));
        assert_eq!(light.message, "mé");
    }

    #[test]
    fn damaged_records_are_none() {
        let record = light(&full());
        for len in 0..record.len() {
            assert_eq!(decode(&record[..len], &[]), None, "{len}");
        }
    }
}
