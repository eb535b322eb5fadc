//! Attempts as the functions of the schema take and give them: a JSON array for each record, in the
//! order of the columns of `attempts`. Pure.

use crate::errors::{Sql, corrupt};
use bytes::Bytes;
use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, HISTORY_BYTES_MAX, Timestamp, WorkerId, fold_at, shed,
};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A record: number, start, end, outcome, worker, error type, message, detail, stack, extra bytes in
/// hexadecimal, and how many it stands for.
#[derive(Debug, Serialize, Deserialize)]
struct Record(
    u32,
    Option<i64>,
    Option<i64>,
    Option<u8>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    String,
    u32,
);

/// Reads a history; `None` is an empty one.
pub(crate) fn decode(json: Option<&str>) -> Sql<Vec<Attempt>> {
    let Some(json) = json else { return Ok(Vec::new()) };
    let records: Vec<Record> = serde_json::from_str(json).map_err(|_| corrupt("history"))?;
    records
        .into_iter()
        .map(|record| record.into_attempt().ok_or_else(|| corrupt("attempt")))
        .collect()
}

/// Writes a history.
pub(crate) fn encode(attempts: &[Attempt]) -> Sql<String> {
    let records: Vec<_> = attempts.iter().map(Record::of).collect();
    serde_json::to_string(&records).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// A history that was carried over, within its bounds.
pub(crate) fn bounded(attempts: &[Attempt]) -> Vec<Attempt> {
    let mut kept: Vec<Attempt> = Vec::with_capacity(attempts.len());
    for attempt in attempts {
        if let Some(index) = fold_at(u32::try_from(kept.len()).unwrap_or(u32::MAX)) {
            let gone = kept.remove(index);
            kept[index - 1].fold_in(&gone);
        }
        kept.push(attempt.clone());
    }
    shed(&mut kept, HISTORY_BYTES_MAX);
    kept
}

impl Record {
    fn of(attempt: &Attempt) -> Self {
        let millis = |at: Option<Timestamp>| at.map(Timestamp::millis);
        let text = |of: fn(&AttemptError) -> &String| attempt.error.as_ref().map(of).cloned();
        Self(
            attempt.attempt_no,
            millis(attempt.started_at),
            millis(attempt.finished_at),
            attempt.outcome.map(AttemptOutcome::number),
            attempt.worker_id.as_ref().map(|worker| worker.as_str().to_owned()),
            text(|error| &error.error_type),
            text(|error| &error.message),
            text(|error| &error.detail),
            text(|error| &error.stack),
            hex(&attempt.extra),
            attempt.folded_count,
        )
    }

    fn into_attempt(self) -> Option<Attempt> {
        let Self(
            no,
            started,
            finished,
            outcome,
            worker,
            kind,
            message,
            detail,
            stack,
            extra,
            folded,
        ) = self;
        Some(Attempt {
            attempt_no: no,
            started_at: started.map(Timestamp::from_millis),
            finished_at: finished.map(Timestamp::from_millis),
            outcome: match outcome {
                Some(number) => Some(AttemptOutcome::of_number(number)?),
                None => None,
            },
            worker_id: worker.map(WorkerId::stored),
            error: kind.map(|error_type| AttemptError {
                error_type,
                message: message.unwrap_or_default(),
                detail: detail.unwrap_or_default(),
                stack: stack.unwrap_or_default(),
            }),
            extra: unhex(&extra)?,
            folded_count: folded,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Bytes> {
    let digit =
        |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rdq_spi::HISTORY_RECORDS_MAX;

    fn full() -> Attempt {
        Attempt {
            attempt_no: u32::MAX,
            started_at: Some(Timestamp::MIN),
            finished_at: Some(Timestamp::MAX),
            outcome: Some(AttemptOutcome::Cancelled),
            worker_id: Some(WorkerId::stored("w")),
            error: Some(AttemptError {
                error_type: "t".into(),
                message: "mé\"\\\n".into(),
                detail: "d".into(),
                stack: "s".into(),
            }),
            extra: Bytes::from_static(b"\0\xff\x0a"),
            folded_count: 3,
        }
    }

    fn bare(attempt_no: u32) -> Attempt {
        Attempt {
            attempt_no,
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
    fn a_history_comes_back_as_it_was() {
        let empty_error = Attempt { error: Some(AttemptError::default()), ..bare(2) };
        let attempts = [full(), bare(1), empty_error];
        assert_eq!(decode(Some(&encode(&attempts).unwrap())).unwrap(), attempts);
        assert_eq!(decode(None).unwrap(), []);
    }

    #[test]
    fn damaged_histories_are_errors() {
        for damaged in [
            "",
            "[[1]]",
            r#"[[1,null,null,9,null,null,null,null,null,"",0]]"#,
            r#"[[1,null,null,1,null,null,null,null,null,"0",0]]"#,
            r#"[[1,null,null,1,null,null,null,null,null,"0g",0]]"#,
        ] {
            assert!(decode(Some(damaged)).is_err(), "{damaged}");
        }
    }

    #[test]
    fn what_is_carried_over_is_folded_in_its_middle() {
        let carried: Vec<_> = (1..=HISTORY_RECORDS_MAX + 5).map(bare).collect();
        let kept = bounded(&carried);
        assert_eq!(kept.len(), HISTORY_RECORDS_MAX as usize);
        assert_eq!((kept[4_998].attempt_no, kept[4_999].folded_count), (4_999, 6));
        assert_eq!(kept[5_000].attempt_no, 5_006);
    }
}
