//! The ends of claims, and tokens that are no longer good.

use crate::{Fixture, given::*};
use rdq_spi::{Call, TaskStatus};

pub(crate) const CALLS: [Call; 5] =
    [Call::Complete, Call::Reschedule, Call::DeadLetter, Call::Fail, Call::Release];

pub(crate) async fn a_stale_token_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let task = enqueue_one(&*store, &queue).await;
    let slow = claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;
    claim_one(&*store, &queue, LONG_LEASE).await;
    let before = get(&*store, &task).await;

    for call in CALLS {
        let answer = end(&*store, &slow, call).await;
        assert!(is_stale(&answer), "{call:?}: {answer:?}");
    }
    let answer = extend(&*store, heartbeat(&slow, LONG_LEASE)).await;

    assert!(is_stale(&answer), "{answer:?}");
    assert_eq!(get(&*store, &task).await, before);
}

pub(crate) async fn a_token_is_good_after_its_lease_until_the_reclaim<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for call in CALLS {
        let queue = some_queue();
        enqueue_one(&*store, &queue).await;
        let slow = claim_one(&*store, &queue, SHORT_LEASE).await;
        lapse(SHORT_LEASE).await;

        let answer = end(&*store, &slow, call).await;

        assert!(answer.as_ref().is_ok_and(|resolved| !resolved.replayed), "{call:?}: {answer:?}");
        assert_ne!(get(&*store, &slow.task.id).await.status, TaskStatus::InFlight, "{call:?}");
    }
}
