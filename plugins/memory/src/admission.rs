//! Admission of tasks.

use crate::{entry::Entry, history::weight, state::State};
use bytes::Bytes;
use rdq_spi::{Admission, NewTask, Result, StorageError, Task, TaskStatus, Timestamp};

impl State {
    pub(crate) fn enqueue(&mut self, new: NewTask, now: Timestamp) -> Result<Admission> {
        if let Ok(entry) = self.find(&new.id) {
            return if entry.task.queue == new.queue {
                Ok(Admission { created: false, status: entry.task.status })
            } else {
                Err(StorageError::IdConflict { task_id: new.id })
            };
        }
        let admitted = self.counters.next_admitted();
        let mut entry = Entry {
            admitted,
            finished: 0,
            generation: 0,
            past: None,
            history_bytes: weight(&new.attempts),
            task: pending_task(new, now),
        };
        entry.bound_history();
        self.insert(Box::new(entry), now);
        Ok(Admission { created: true, status: TaskStatus::Pending })
    }
}

fn pending_task(new: NewTask, now: Timestamp) -> Task {
    Task {
        id: new.id,
        queue: new.queue,
        handler_ref: new.handler_ref,
        priority: new.priority,
        envelope: new.envelope,
        overrides: new.overrides,
        status: TaskStatus::Pending,
        attempt_count: new.attempt_count,
        redrive_count: new.redrive_count,
        lease_expired_count: new.lease_expired_count,
        progress: new.progress,
        result: Bytes::new(),
        claimed_at: None,
        claimed_by: None,
        next_attempt_at: Some(new.due.resolve(now)),
        lease_expires_at: None,
        expires_at: new.expires.map(|expires| expires.resolve(now)),
        created_at: new.created_at.unwrap_or(now),
        finished_at: None,
        last_attempt_no: new.attempts.iter().map(|attempt| attempt.attempt_no).max().unwrap_or(0),
        attempts: new.attempts,
    }
}

/// Gives the task memory of its own: what comes is often a small slice of a large request, and
/// would keep the whole of it.
pub(crate) fn detach_task(new: &mut NewTask) {
    detach(&mut new.envelope);
    detach(&mut new.progress);
    for attempt in &mut new.attempts {
        detach(&mut attempt.extra);
    }
}

/// Replaces a slice by a copy of its own.
pub(crate) fn detach(bytes: &mut Bytes) {
    *bytes = if bytes.is_empty() { Bytes::new() } else { Bytes::copy_from_slice(bytes) };
}
