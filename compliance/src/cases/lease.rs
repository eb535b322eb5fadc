//! Leases: kept, lapsed, reclaimed.

use crate::{Fixture, given::*};
use rdq_spi::{AttemptError, AttemptOutcome};

pub(crate) async fn a_reclaim_appends_and_counts<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let slow = claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;

    let quick = claim_one(&*store, &queue, LONG_LEASE).await;

    assert!(quick.generation > slow.generation);
    assert_ne!(quick.token, slow.token);
    let task = get(&*store, &quick.task.id).await;
    assert_eq!((task.attempt_count, task.lease_expired_count), (1, 1));
    let record = task.attempts.last().expect("a record");
    assert_eq!(record.attempt_no, 1);
    assert_eq!(record.outcome, Some(AttemptOutcome::LeaseExpired));
    assert_eq!(record.worker_id, slow.task.claimed_by, "the record is about the one that lapsed");
    assert_eq!(record.started_at, slow.task.claimed_at);
    let error_type = record.error.as_ref().map(|error| error.error_type.as_str());
    assert_eq!(error_type, Some(AttemptError::LEASE_EXPIRED));
}
