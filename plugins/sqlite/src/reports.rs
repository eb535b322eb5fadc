//! What transitions write into histories.

use crate::{errors::Sql, history, rows::TaskRow, transaction::Tx};
use rdq_spi::{Attempt, AttemptError, AttemptOutcome, AttemptReport};

/// Appends the record of the claim that ends now, or of a transition without a claim, and counts it.
pub(crate) fn append(
    tx: &mut Tx<'_, '_>,
    row: &mut TaskRow,
    outcome: AttemptOutcome,
    report: &AttemptReport,
) -> Sql<()> {
    row.attempt_count = row.attempt_count.saturating_add(1);
    row.last_attempt_no = row.last_attempt_no.saturating_add(1);
    let attempt = Attempt {
        attempt_no: row.last_attempt_no,
        started_at: row.claimed_at,
        finished_at: Some(tx.now),
        outcome: Some(outcome),
        worker_id: row.claimed_by.clone(),
        error: report.error.clone(),
        extra: report.extra.clone(),
        folded_count: 0,
    };
    history::append(tx.sql, row.task, &mut row.history, &attempt)
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
