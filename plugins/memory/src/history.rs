//! How a task's history grows and stays bounded, and what of it an answer carries.

use crate::entry::Entry;
use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, CLAIM_ATTEMPTS_MAX, HISTORY_BYTES_MAX,
    Timestamp, fold_at, shed,
};

impl Entry {
    /// Appends the record of the claim that ends now, or of a transition without a claim, and
    /// counts it.
    pub(crate) fn append(
        &mut self,
        outcome: AttemptOutcome,
        report: AttemptReport,
        now: Timestamp,
    ) {
        let task = &mut self.task;
        task.attempt_count = task.attempt_count.saturating_add(1);
        task.last_attempt_no = task.last_attempt_no.saturating_add(1);
        let attempt = Attempt {
            attempt_no: task.last_attempt_no,
            started_at: task.claimed_at,
            finished_at: Some(now),
            outcome: Some(outcome),
            worker_id: task.claimed_by.clone(),
            error: report.error,
            extra: report.extra,
            folded_count: 0,
        };
        if let Some(index) = u32::try_from(task.attempts.len()).ok().and_then(fold_at) {
            let gone = task.attempts.remove(index);
            task.attempts[index - 1].fold_in(&gone);
            self.history_bytes -= gone.len_bytes();
        }
        self.history_bytes += attempt.len_bytes();
        // Most tasks end with one record; room for more would outweigh the rest of the task.
        if task.attempts.is_empty() {
            task.attempts.reserve_exact(1);
        }
        task.attempts.push(attempt);
        self.bound_history();
    }

    /// Cuts the history's text to its bound.
    pub(crate) fn bound_history(&mut self) {
        if self.history_bytes > HISTORY_BYTES_MAX {
            shed(&mut self.task.attempts, HISTORY_BYTES_MAX);
            self.history_bytes = weight(&self.task.attempts);
        }
    }
}

/// The text of a history, in bytes.
pub(crate) fn weight(attempts: &[Attempt]) -> usize {
    attempts.iter().map(Attempt::len_bytes).sum()
}

/// The record that a reclaimed lease leaves.
pub(crate) fn lease_expired() -> AttemptReport {
    report(AttemptError::LEASE_EXPIRED, "the lease ran out and the task was claimed again")
}

/// The record of a task that outlived its `expires_at`.
pub(crate) fn expired() -> AttemptReport {
    report(AttemptError::EXPIRED, "the task was not finished by its expires_at")
}

fn report(error_type: &str, message: &str) -> AttemptReport {
    let error = AttemptError::new(error_type, message);
    AttemptReport { error: Some(error), ..AttemptReport::default() }
}

/// Which part of a history an answer carries.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// The newest records, without stacks and details.
    Claim,
    /// The final record, without stack and detail.
    Final,
    /// None of it.
    Nothing,
}

/// That part of the history.
pub(crate) fn part(attempts: &[Attempt], part: Part) -> Vec<Attempt> {
    let newest = match part {
        Part::Whole => return attempts.to_vec(),
        Part::Claim => CLAIM_ATTEMPTS_MAX,
        Part::Final => 1,
        Part::Nothing => 0,
    };
    let attempts = &attempts[attempts.len().saturating_sub(newest)..];
    attempts.iter().map(without_stack_and_detail).collect()
}

fn without_stack_and_detail(attempt: &Attempt) -> Attempt {
    // Field by field: a clone of the whole would copy the long texts first.
    let error = attempt.error.as_ref().map(|error| AttemptError {
        error_type: error.error_type.clone(),
        message: error.message.clone(),
        ..AttemptError::default()
    });
    Attempt {
        error,
        worker_id: attempt.worker_id.clone(),
        extra: attempt.extra.clone(),
        ..*attempt
    }
}
