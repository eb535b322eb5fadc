//! A task as people and programs see it: the contract's names, with times and bytes made readable.
//! It calls no server.

use crate::{errors::CliError, output, values};
use bytes::Bytes;
use prost::Message as _;
use prost_types::{Duration, Timestamp};
use rdq_proto::{
    raw,
    v1::{Attempt, AttemptError, AttemptOutcome, ErrorReason, Task, TaskStatus},
};
use serde::Serialize;
use std::collections::BTreeMap;

/// The highest field numbers that this version knows.
const TASK_FIELD_MAX: u32 = 29;
const ATTEMPT_FIELD_MAX: u32 = 7;
const ERROR_FIELD_MAX: u32 = 4;

/// A task for programs. What is unset is left out; bytes that are not UTF-8 are in `…_base64`.
#[derive(Debug, Serialize)]
pub(crate) struct TaskView {
    id: String,
    queue: String,
    handler_ref: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler_version: Option<String>,
    status: String,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    payload_content_type: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initial_backoff: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_dead: Option<String>,
    attempt_count: i32,
    redrive_count: i32,
    lease_expired_count: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_base64: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    claimed_by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    claimed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    attempts: Vec<AttemptView>,
    /// Fields that a newer client set and this program cannot show; they are stored all the same.
    #[serde(skip_serializing_if = "is_zero")]
    unknown_fields: usize,
}

/// One attempt for programs.
#[derive(Debug, Serialize)]
struct AttemptView {
    attempt_no: i32,
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    worker_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
    #[serde(skip_serializing_if = "is_zero_i32")]
    folded_count: i32,
}

/// Why an attempt failed, for programs.
#[derive(Debug, Serialize)]
struct ErrorView {
    r#type: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    stack: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero_i32(number: &i32) -> bool {
    *number == 0
}

impl TaskView {
    /// Decodes a task as the wire carries it.
    pub(crate) fn decode(raw: &Bytes) -> Result<Self, CliError> {
        let task = Task::decode(raw.clone()).map_err(|error| malformed(&error))?;
        let mut unknown = unknown_fields(raw, TASK_FIELD_MAX);
        let mut attempts = Vec::with_capacity(task.attempts.len());
        for raw in &task.attempts {
            let attempt = Attempt::decode(raw.clone()).map_err(|error| malformed(&error))?;
            unknown += unknown_fields(raw, ATTEMPT_FIELD_MAX);
            unknown += unknown_fields(&attempt.error, ERROR_FIELD_MAX);
            let error = (!attempt.error.is_empty())
                .then(|| AttemptError::decode(attempt.error.clone()))
                .transpose()
                .map_err(|error| malformed(&error))?;
            attempts.push(AttemptView::of(attempt, error));
        }
        let (payload, payload_base64) = values::text_or_base64(&task.payload);
        let (progress, progress_base64) = values::text_or_base64(&task.progress);
        let (result, result_base64) = values::text_or_base64(&task.result);
        Ok(Self {
            status: status(task.status),
            id: task.id,
            queue: task.queue,
            handler_ref: task.handler_ref,
            handler_version: task.handler_version,
            priority: task.priority,
            payload,
            payload_base64,
            payload_content_type: task.payload_content_type,
            headers: task.headers.into_iter().collect(),
            max_attempts: task.max_attempts,
            lease: task.lease.map(values::human),
            initial_backoff: task.initial_backoff.map(values::human),
            retention_dead: task.retention_dead.map(values::human),
            attempt_count: task.attempt_count,
            redrive_count: task.redrive_count,
            lease_expired_count: task.lease_expired_count,
            progress,
            progress_base64,
            result,
            result_base64,
            claimed_by: task.claimed_by,
            claimed_at: instant(task.claimed_at),
            next_attempt_at: instant(task.next_attempt_at),
            lease_expires_at: instant(task.lease_expires_at),
            expires_at: instant(task.expires_at),
            created_at: instant(task.created_at),
            finished_at: instant(task.finished_at),
            attempts,
            unknown_fields: unknown,
        })
    }

    /// The payload on one line for people.
    pub(crate) fn payload_cell(&self) -> String {
        cell(self.payload.as_ref(), self.payload_base64.as_ref())
    }

    /// The heads of [`Self::row`].
    pub(crate) const HEADS: [&str; 8] =
        ["ID", "STATUS", "HANDLER", "ATTEMPTS", "PRIORITY", "DUE", "LEASE ENDS", "PAYLOAD"];

    /// Attempts that count against its maximum, as a redrive resets them.
    pub(crate) fn attempt_count(&self) -> i32 {
        self.attempt_count
    }

    /// One line of a list.
    pub(crate) fn row(&self) -> [String; 8] {
        let instant = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".into());
        [
            output::cell(&self.id),
            self.status.clone(),
            output::cell(&self.handler_ref),
            self.attempt_count.to_string(),
            self.priority.to_string(),
            instant(&self.next_attempt_at),
            instant(&self.lease_expires_at),
            self.payload_cell(),
        ]
    }

    /// The heads of [`Self::dead_row`].
    pub(crate) const DEAD_HEADS: [&str; 6] =
        ["ID", "HANDLER", "ATTEMPTS", "DEAD SINCE", "ERROR", "MESSAGE"];

    /// One line of a list of dead letters.
    pub(crate) fn dead_row(&self) -> [String; 6] {
        let error = self.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
        [
            output::cell(&self.id),
            output::cell(&self.handler_ref),
            self.attempt_count.to_string(),
            self.finished_at.clone().unwrap_or_else(|| "-".into()),
            error.map_or_else(|| "-".into(), |error| output::cell(&error.r#type)),
            error.map_or_else(|| "-".into(), |error| output::cell(&error.message)),
        ]
    }

    /// All of it for people.
    pub(crate) fn page(&self) -> String {
        let mut pairs = vec![
            ("id", output::cell(&self.id)),
            ("queue", output::cell(&self.queue)),
            ("handler", output::cell(&self.handler_ref)),
            ("status", self.status.clone()),
            ("priority", self.priority.to_string()),
            ("attempts", self.attempt_count.to_string()),
        ];
        let mut optional = |name, value: Option<&String>| {
            pairs.extend(value.filter(|value| !value.is_empty()).map(|v| (name, output::cell(v))));
        };
        optional("handler version", self.handler_version.as_ref());
        optional("created", self.created_at.as_ref());
        optional("next attempt", self.next_attempt_at.as_ref());
        optional("claimed by", Some(&self.claimed_by));
        optional("claimed", self.claimed_at.as_ref());
        optional("lease ends", self.lease_expires_at.as_ref());
        optional("expires", self.expires_at.as_ref());
        optional("finished", self.finished_at.as_ref());
        optional("lease", self.lease.as_ref());
        optional("initial backoff", self.initial_backoff.as_ref());
        optional("kept once dead", self.retention_dead.as_ref());
        optional("content type", Some(&self.payload_content_type));
        pairs.extend(self.max_attempts.map(|max| ("max attempts", max.to_string())));
        if self.redrive_count > 0 {
            pairs.push(("redrives", self.redrive_count.to_string()));
        }
        if self.lease_expired_count > 0 {
            pairs.push(("leases lapsed", self.lease_expired_count.to_string()));
        }
        for (key, value) in &self.headers {
            pairs.push(("header", output::cell(&format!("{key}={value}"))));
        }
        pairs.push(("payload", self.payload_cell()));
        pairs.push(("progress", cell(self.progress.as_ref(), self.progress_base64.as_ref())));
        pairs.push(("result", cell(self.result.as_ref(), self.result_base64.as_ref())));
        if self.unknown_fields > 0 {
            pairs.push(("unknown fields", self.unknown_fields.to_string()));
        }
        pairs.retain(|(_, value)| !value.is_empty());
        let mut page = output::pairs(pairs);
        if !self.attempts.is_empty() {
            let heads = ["ATTEMPT", "OUTCOME", "FINISHED", "WORKER", "ERROR", "MESSAGE"];
            page.push_str("\n\n");
            page.push_str(&output::table(heads, self.attempts.iter().map(AttemptView::row)));
        }
        page
    }
}

impl AttemptView {
    fn of(attempt: Attempt, error: Option<AttemptError>) -> Self {
        Self {
            attempt_no: attempt.attempt_no,
            outcome: outcome(attempt.outcome),
            started_at: instant(attempt.started_at),
            finished_at: instant(attempt.finished_at),
            worker_id: attempt.worker_id,
            error: error.map(|error| ErrorView {
                r#type: error.r#type,
                message: error.message,
                detail: error.detail,
                stack: error.stack,
            }),
            folded_count: attempt.folded_count,
        }
    }

    fn row(&self) -> [String; 6] {
        let error = self.error.as_ref();
        [
            match self.folded_count {
                0 => self.attempt_no.to_string(),
                count => format!("{} (stands for {count})", self.attempt_no),
            },
            self.outcome.clone(),
            self.finished_at.clone().unwrap_or_else(|| "-".into()),
            output::cell(&self.worker_id),
            error.map(|error| output::cell(&error.r#type)).unwrap_or_default(),
            error.map(|error| output::cell(&error.message)).unwrap_or_default(),
        ]
    }
}

fn cell(text: Option<&String>, base64: Option<&String>) -> String {
    match (text, base64) {
        (Some(text), _) => output::cell(text),
        (None, Some(base64)) => output::cell(&format!("base64:{base64}")),
        (None, None) => String::new(),
    }
}

fn instant(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string())
}

fn unknown_fields(message: &Bytes, known_max: u32) -> usize {
    raw::fields(message.clone())
        .filter(|field| field.as_ref().is_ok_and(|field| field.number > known_max))
        .count()
}

fn malformed(error: &prost::DecodeError) -> CliError {
    CliError::Malformed(format!("the server sent a task that cannot be read: {error}"))
}

/// A status by its short name, or its number if this version does not know it.
pub(crate) fn status(status: i32) -> String {
    let name = TaskStatus::try_from(status).map(|status| status.as_str_name());
    short(name.ok(), "TASK_STATUS_", status)
}

/// A reason by its short name, or its number if this version does not know it.
pub(crate) fn reason(reason: i32) -> String {
    let name = ErrorReason::try_from(reason).map(|reason| reason.as_str_name());
    short(name.ok(), "ERROR_REASON_", reason)
}

fn outcome(outcome: i32) -> String {
    let name = AttemptOutcome::try_from(outcome).map(|outcome| outcome.as_str_name());
    short(name.ok(), "ATTEMPT_OUTCOME_", outcome)
}

/// A value's name without its prefix, or its number.
pub(crate) fn short(name: Option<&str>, prefix: &str, number: i32) -> String {
    name.map_or_else(|| number.to_string(), |name| name.trim_start_matches(prefix).to_owned())
}

/// A duration for programs and people alike.
pub(crate) fn span(duration: Option<Duration>) -> Option<String> {
    duration.map(values::human)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_shown_by_the_contracts_names_and_what_is_unset_is_left_out() {
        let error = AttemptError { r#type: "http.503".into(), ..Default::default() };
        let attempt = Attempt {
            attempt_no: 1,
            outcome: 2,
            error: error.encode_to_vec().into(),
            ..Default::default()
        };
        let task = Task {
            id: "a".into(),
            queue: "q".into(),
            handler_ref: "h".into(),
            payload: Bytes::from_static(&[0xff]),
            status: 4,
            created_at: Some(Timestamp { seconds: 0, nanos: 1_000_000 }),
            lease: Some(Duration { seconds: 90, nanos: 0 }),
            attempts: vec![attempt.encode_to_vec().into()],
            ..Default::default()
        };
        let view = TaskView::decode(&task.encode_to_vec().into()).unwrap();
        assert_eq!(
            serde_json::to_value(&view).unwrap(),
            serde_json::json!({
                "id": "a", "queue": "q", "handler_ref": "h", "status": "DEAD", "priority": 0,
                "payload_base64": "/w==", "lease": "1m 30s", "created_at": "1970-01-01T00:00:00.001Z",
                "attempt_count": 0, "redrive_count": 0, "lease_expired_count": 0,
                "attempts": [{ "attempt_no": 1, "outcome": "RETRYABLE_FAILURE",
                               "error": { "type": "http.503" } }],
            })
        );
        assert!(view.page().contains("http.503"));
    }

    #[test]
    fn a_list_tells_what_is_due_from_whose_lease_ends() {
        let at = Some(Timestamp { seconds: 60, nanos: 0 });
        let column = |task: Task, head| {
            let view = TaskView::decode(&task.encode_to_vec().into()).unwrap();
            let column = TaskView::HEADS.iter().position(|it| *it == head).unwrap();
            view.row()[column].clone()
        };
        let pending = Task { next_attempt_at: at, ..Default::default() };
        let held = Task { lease_expires_at: at, ..Default::default() };
        assert_eq!(column(pending.clone(), "DUE"), "1970-01-01T00:01:00Z");
        assert_eq!(
            (column(pending, "LEASE ENDS"), column(held.clone(), "DUE")),
            ("-".into(), "-".into())
        );
        assert_eq!(column(held, "LEASE ENDS"), "1970-01-01T00:01:00Z");
    }

    #[test]
    fn fields_of_a_newer_contract_are_counted_at_every_level() {
        let new_field = [0xfa, 0xff, 0xff, 0xff, 0x0f, 1, 7];
        let mut attempt = Attempt { attempt_no: 1, ..Default::default() }.encode_to_vec();
        attempt.extend_from_slice(&new_field);
        let task = Task { id: "a".into(), attempts: vec![attempt.into()], ..Default::default() };
        let mut bytes = task.encode_to_vec();
        bytes.extend_from_slice(&new_field);
        assert_eq!(TaskView::decode(&bytes.into()).unwrap().unknown_fields, 2);
    }

    #[test]
    fn a_status_of_a_newer_contract_is_shown_by_its_number() {
        assert_eq!(status(2), "IN_FLIGHT");
        assert_eq!(status(77), "77");
    }
}
