//! A task to enqueue.

use crate::TaskStatus;
use bytes::Bytes;
use prost::Message as _;
use rdq_proto::{time, v1};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};
use ulid::{Generator, Overflow};

/// A task to enqueue: the queue, the handler's name, and all else optional.
///
/// ```
/// use rdq_client::NewTask;
/// use std::time::Duration;
///
/// let task = NewTask::new("mail", "send")
///     .payload(r#"{"to": "a@example.org"}"#)
///     .content_type("application/json")
///     .priority(5)
///     .delay(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone)]
#[must_use = "a task does nothing before it is enqueued"]
pub struct NewTask {
    task: v1::Task,
    unknown_fields: Bytes,
}

impl NewTask {
    /// A task for a queue and a handler. Both names are 1 to 240 bytes of UTF-8.
    pub fn new(queue: impl Into<String>, handler_ref: impl Into<String>) -> Self {
        let task = v1::Task {
            queue: queue.into(),
            handler_ref: handler_ref.into(),
            ..v1::Task::default()
        };
        Self { task, unknown_fields: Bytes::new() }
    }

    /// Names the task for life: 1 to 255 bytes, unique in the store. If not set, the client makes a
    /// ULID before it sends the task the first time.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.task.id = id.into();
        self
    }

    /// Bytes for the handler; up to the queue's limit, 1 MiB by default.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.task.payload = payload.into();
        self
    }

    /// What the payload is, such as `application/json`; up to 255 bytes.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.task.payload_content_type = content_type.into();
        self
    }

    /// One more header for the handler. All together may have 64 KiB.
    pub fn header(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.task.headers.insert(key.into(), value.into());
        self
    }

    /// More headers.
    pub fn headers<K: Into<String>, V: Into<String>>(
        mut self,
        headers: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let headers = headers.into_iter().map(|(key, value)| (key.into(), value.into()));
        self.task.headers.extend(headers);
        self
    }

    /// Higher goes first; 0 if not set.
    pub fn priority(mut self, priority: i32) -> Self {
        self.task.priority = priority;
        self
    }

    /// The task is due so long after its admission, by the storage's clock.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.task.delay = Some(time::duration(delay));
        self
    }

    /// The task is due at this instant. A [`delay`](Self::delay) wins over it.
    pub fn due_at(mut self, at: SystemTime) -> Self {
        self.task.next_attempt_at = Some(at.into());
        self
    }

    /// The task is dead if it did not end so long after its admission.
    pub fn expires_in(mut self, expires_in: Duration) -> Self {
        self.task.expires_in = Some(time::duration(expires_in));
        self
    }

    /// The task is dead if it did not end by this instant. [`expires_in`](Self::expires_in) wins
    /// over it.
    pub fn expires_at(mut self, at: SystemTime) -> Self {
        self.task.expires_at = Some(at.into());
        self
    }

    /// The version of the handler that is meant.
    pub fn handler_version(mut self, version: impl Into<String>) -> Self {
        self.task.handler_version = Some(version.into());
        self
    }

    /// How many attempts the task has, at least 1; the queue's if not set.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.task.max_attempts = Some(i32::try_from(max_attempts).unwrap_or(i32::MAX));
        self
    }

    /// The lease of a claim that names none, from 10 ms to 12 h; the queue's if not set.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.task.lease = Some(time::duration(lease));
        self
    }

    /// The backoff after the first failed attempt, above zero; the queue's if not set.
    pub fn initial_backoff(mut self, backoff: Duration) -> Self {
        self.task.initial_backoff = Some(time::duration(backoff));
        self
    }

    /// How long the task is kept once dead, above zero; the queue's if not set.
    pub fn retention_dead(mut self, retention: Duration) -> Self {
        self.task.retention_dead = Some(time::duration(retention));
        self
    }

    /// Encoded fields of a newer contract than this client knows. They are kept with the task as
    /// they are.
    pub fn unknown_fields(mut self, fields: impl Into<Bytes>) -> Self {
        self.unknown_fields = fields.into();
        self
    }

    /// What is sent: with an id, and with the trace of the caller.
    pub(crate) fn encode(mut self) -> EncodedTask {
        let is_named_here = self.task.id.is_empty();
        if is_named_here {
            self.task.id = next_id();
        }
        add_trace(&mut self.task.headers);
        let mut bytes = self.task.encode_to_vec();
        bytes.extend_from_slice(&self.unknown_fields);
        EncodedTask { is_named_here, bytes: bytes.into() }
    }
}

/// A task as it goes over the wire.
#[derive(Debug, Clone)]
pub(crate) struct EncodedTask {
    is_named_here: bool,
    pub(crate) bytes: Bytes,
}

impl EncodedTask {
    /// The answer to it.
    pub(crate) fn enqueued(&self, response: v1::EnqueueResponse) -> Enqueued {
        let status = response.status().into();
        // Nobody else knows an id that was made here: if the task was there already, an earlier try
        // of the same call brought it.
        Enqueued { created: response.created || self.is_named_here, id: response.id, status }
    }
}

/// What an enqueued task is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    /// The task's id: the caller's, or the one that the client made.
    pub id: String,
    /// Whether the task is new. With an id of the caller's it is not if it was there already, be it
    /// only through an earlier try of this very call whose answer was lost.
    pub created: bool,
    /// The status of the task now.
    pub status: TaskStatus,
}

/// A ULID greater than all that this process made before, so that tasks which were made one after
/// the other stand so in the storage's index.
fn next_id() -> String {
    static IDS: Mutex<Generator> = Mutex::new(Generator::new());
    let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    ids.generate().unwrap_or_else(Overflow::commit_overflow_increment).to_string()
}

#[cfg(feature = "opentelemetry")]
fn add_trace(headers: &mut HashMap<String, String>) {
    crate::trace::inject(headers);
}

#[cfg(not(feature = "opentelemetry"))]
fn add_trace(_: &mut HashMap<String, String>) {}
