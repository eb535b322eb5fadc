//! A task as it lies in memory: what every answer shows, and what the contract makes the storage
//! remember beside it. It decides nothing; it knows what each transition writes.

use crate::history::{Part, part, weight};
use rdq_spi::{Call, Resolved, StaleDetail, StorageError, Task, TaskStatus, Timestamp};

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) task: Task,
    /// The order of admission, and the name of the entry within the state.
    pub(crate) admitted: u64,
    /// The order in which tasks finished; of a terminal task alone.
    pub(crate) finished: u64,
    /// Of the newest claim; 0 if there was none.
    pub(crate) generation: i64,
    /// What the newest claim led to, while that is remembered.
    pub(crate) past: Option<Past>,
    /// The weight of the history's text.
    pub(crate) history_bytes: usize,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Past {
    /// Its holder resolved it by this call, with this answer.
    Resolved(Call, Resolved),
    /// Something else ended the task under it.
    Ended(StaleDetail),
}

/// Where a token stands.
pub(crate) enum Standing {
    /// It holds the task.
    Holds,
    /// It is of the newest claim, which is over.
    Over(Past),
    /// It is of an earlier claim, or of none.
    Superseded,
}

impl Past {
    /// What ended the claim, if its holder did not.
    pub(crate) fn detail(self) -> Option<StaleDetail> {
        match self {
            Self::Resolved(..) => None,
            Self::Ended(detail) => Some(detail),
        }
    }
}

impl Entry {
    /// Where the claim of this generation stands; `None` is a token that was never issued.
    pub(crate) fn standing(&self, generation: Option<i64>) -> Standing {
        if generation != Some(self.generation) {
            return Standing::Superseded;
        }
        match self.past {
            Some(past) => Standing::Over(past),
            None if self.task.status == TaskStatus::InFlight => Standing::Holds,
            None => Standing::Superseded,
        }
    }

    /// The refusal of a token.
    pub(crate) fn stale(&self, detail: Option<StaleDetail>) -> StorageError {
        StorageError::StaleClaim { task_id: self.task.id.clone(), detail }
    }

    /// When the task is due: pending, or in flight with a lease that ends. `None` once it is
    /// terminal.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        self.task.next_attempt_at.or(self.task.lease_expires_at)
    }

    /// Whether the lease of a task in flight has run out.
    pub(crate) fn lapsed(&self, now: Timestamp) -> bool {
        self.task.lease_expires_at.is_some_and(|end| end <= now)
    }

    /// Pending, and due then.
    pub(crate) fn wait_until(&mut self, due: Timestamp) {
        self.leave_claim(TaskStatus::Pending);
        self.task.next_attempt_at = Some(due);
    }

    /// Terminal, as the `finished`th task.
    pub(crate) fn finish(&mut self, status: TaskStatus, finished: u64, now: Timestamp) {
        self.leave_claim(status);
        self.task.next_attempt_at = None;
        self.task.finished_at = Some(now);
        self.finished = finished;
    }

    fn leave_claim(&mut self, status: TaskStatus) {
        self.task.status = status;
        self.task.claimed_at = None;
        self.task.claimed_by = None;
        self.task.lease_expires_at = None;
    }

    /// The task with a part of its history, and what an answer with it weighs.
    pub(crate) fn answer(&self, history: Part) -> (Task, usize) {
        // Field by field: a clone of the whole would copy the history first.
        let task = Task {
            id: self.task.id.clone(),
            queue: self.task.queue.clone(),
            handler_ref: self.task.handler_ref.clone(),
            envelope: self.task.envelope.clone(),
            progress: self.task.progress.clone(),
            result: self.task.result.clone(),
            claimed_by: self.task.claimed_by.clone(),
            attempts: part(&self.task.attempts, history),
            ..self.task
        };
        let sent = task.envelope.len() + task.progress.len() + task.result.len();
        let bytes = sent + weight(&task.attempts) + RECORD_BYTES * task.attempts.len();
        (task, bytes)
    }
}

/// What a record of the history weighs in an answer beside its text: numbers and instants.
const RECORD_BYTES: usize = 48;
