//! Attempts as documents within their task's, and how a history stays bounded. Pure.

use crate::{
    database::literal,
    document::{binary, bytes, count, count_of_one_more, date, instant},
    errors::{Step, corrupt},
};
use mongodb::bson::{Binary, DateTime, Document, doc};
use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, HISTORY_BYTES_MAX, Timestamp, WorkerId,
    fold_at, shed,
};
use serde::{Deserialize, Serialize};

/// What a record weighs in an answer beside its text: numbers and instants.
pub(crate) const RECORD_BYTES: i64 = 48;

/// A record.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AttemptDocument {
    no: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<ErrorDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra: Option<Binary>,
    /// Above 0: this record stands for so many.
    #[serde(default)]
    folded: i64,
    /// What it weighs in its history, and in an answer without stacks and details.
    bytes: i64,
    light_bytes: i64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ErrorDocument {
    #[serde(rename = "type", default)]
    error_type: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    stack: String,
}

impl AttemptDocument {
    pub(crate) fn of(attempt: &Attempt) -> Self {
        let weight = attempt.len_bytes();
        let long = attempt.error.as_ref().map_or(0, |it| it.detail.len() + it.stack.len());
        let size = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            no: attempt.attempt_no.into(),
            started: attempt.started_at.map(date),
            finished: attempt.finished_at.map(date),
            outcome: attempt.outcome.map(|outcome| outcome.number().into()),
            worker: attempt.worker_id.as_ref().map(|worker| worker.as_str().to_owned()),
            error: attempt.error.clone().map(|error| ErrorDocument {
                error_type: error.error_type,
                message: error.message,
                detail: error.detail,
                stack: error.stack,
            }),
            extra: (!attempt.extra.is_empty()).then(|| binary(&attempt.extra)),
            folded: attempt.folded_count.into(),
            bytes: size(weight),
            light_bytes: size(weight - long),
        }
    }

    pub(crate) fn into_attempt(self) -> Step<Attempt> {
        let outcome = self.outcome.map(|number| {
            let outcome = u8::try_from(number).ok().and_then(AttemptOutcome::of_number);
            outcome.ok_or_else(|| corrupt("outcome"))
        });
        Ok(Attempt {
            attempt_no: count(self.no),
            started_at: self.started.map(instant),
            finished_at: self.finished.map(instant),
            outcome: outcome.transpose()?,
            worker_id: self.worker.map(WorkerId::stored),
            error: self.error.map(|error| AttemptError {
                error_type: error.error_type,
                message: error.message,
                detail: error.detail,
                stack: error.stack,
            }),
            extra: bytes(self.extra),
            folded_count: count(self.folded),
        })
    }

    pub(crate) fn weight(&self) -> i64 {
        self.bytes
    }
}

/// A history as its task keeps it.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) records: i64,
    pub(crate) bytes: i64,
    pub(crate) attempts: Vec<AttemptDocument>,
}

/// A history within its bounds.
pub(crate) fn bounded(attempts: impl IntoIterator<Item = Attempt>) -> History {
    let mut kept: Vec<Attempt> = Vec::new();
    for attempt in attempts {
        if let Some(index) = fold_at(u32::try_from(kept.len()).unwrap_or(u32::MAX)) {
            let gone = kept.remove(index);
            kept[index - 1].fold_in(&gone);
        }
        kept.push(attempt);
    }
    shed(&mut kept, HISTORY_BYTES_MAX);
    let attempts: Vec<_> = kept.iter().map(AttemptDocument::of).collect();
    let records = i64::try_from(attempts.len()).unwrap_or(i64::MAX);
    History { records, bytes: attempts.iter().map(AttemptDocument::weight).sum(), attempts }
}

/// The record of the claim that ends now, or of a transition without a claim.
pub(crate) fn record(
    attempt_no: i64,
    held: Option<(Option<DateTime>, Option<&str>)>,
    outcome: AttemptOutcome,
    report: AttemptReport,
    now: Timestamp,
) -> Attempt {
    let (started, worker) = held.unwrap_or_default();
    Attempt {
        attempt_no: count(attempt_no),
        started_at: started.map(instant),
        finished_at: Some(now),
        outcome: Some(outcome),
        worker_id: worker.map(WorkerId::stored),
        error: report.error,
        extra: report.extra,
        folded_count: 0,
    }
}

/// A record of a success has no more text than this.
pub(crate) const ROOM: usize = 4_096;

/// The record of a claim that succeeds, as the server makes it of its task, and what it weighs.
pub(crate) fn succeeded(extra: &[u8], now: &Document) -> (Document, Document) {
    let extra_bytes = i64::try_from(extra.len()).unwrap_or(i64::MAX);
    let weight = doc! { "$add": [
        extra_bytes, { "$toLong": { "$strLenBytes": { "$ifNull": ["$claimed_by", ""] } } },
    ] };
    let mut record = doc! {
        "no": count_of_one_more("$last_attempt_no"),
        "started": "$claimed_at",
        "finished": now,
        "outcome": i32::from(AttemptOutcome::Success.number()),
        "worker": "$claimed_by",
    };
    if !extra.is_empty() {
        record.insert("extra", literal(binary(extra)));
    }
    record.extend(doc! { "folded": 0_i64, "bytes": &weight, "light_bytes": &weight });
    (record, weight)
}

/// What is said of a claim that lapsed.
pub(crate) fn lapsed() -> AttemptReport {
    let message = "the lease ran out and the task was claimed again";
    let error = AttemptError::new(AttemptError::LEASE_EXPIRED, message);
    AttemptReport { error: Some(error), ..AttemptReport::default() }
}

/// What is said of a task that outlived its `expires_at`.
pub(crate) fn expired() -> AttemptReport {
    let message = "the task was not finished by its expires_at";
    let error = AttemptError::new(AttemptError::EXPIRED, message);
    AttemptReport { error: Some(error), ..AttemptReport::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rdq_spi::HISTORY_RECORDS_MAX;

    fn bare(attempt_no: u32) -> Attempt {
        let error = attempt_no.is_multiple_of(2).then(AttemptError::default);
        Attempt {
            attempt_no,
            started_at: None,
            finished_at: None,
            outcome: None,
            worker_id: None,
            error,
            extra: Bytes::new(),
            folded_count: 0,
        }
    }

    #[test]
    fn a_history_comes_back_as_it_was() {
        let full = Attempt {
            attempt_no: u32::MAX,
            started_at: Some(Timestamp::MIN),
            finished_at: Some(Timestamp::MAX),
            outcome: Some(AttemptOutcome::Cancelled),
            worker_id: Some(WorkerId::stored("w")),
            error: Some(AttemptError { stack: "s\0".into(), ..AttemptError::new("t", "$m") }),
            extra: Bytes::from_static(b"\0\xff"),
            folded_count: 3,
        };
        for attempt in [full, bare(1), bare(2)] {
            let document = AttemptDocument::of(&attempt);
            assert_eq!(document.weight(), i64::try_from(attempt.len_bytes()).unwrap());
            let stored = mongodb::bson::serialize_to_vec(&document).unwrap();
            let read: AttemptDocument = mongodb::bson::deserialize_from_slice(&stored).unwrap();
            assert_eq!(read.into_attempt().unwrap(), attempt);
        }
    }

    #[test]
    fn what_is_carried_over_is_folded_in_its_middle() {
        let history = bounded((1..=HISTORY_RECORDS_MAX + 5).map(bare));
        assert_eq!(history.records, i64::from(HISTORY_RECORDS_MAX));
        assert_eq!((history.attempts[4_998].no, history.attempts[4_999].folded), (4_999, 6));
        assert_eq!(history.attempts[5_000].no, 5_006);
    }
}
