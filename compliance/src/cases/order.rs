//! The order of claims: priority, then due time, then admission; and fairness between queues.

use crate::{Fixture, Random, given::*};
use rdq_spi::{Call, ClaimParams, Moment, Outcome, Timestamp};
use std::time::Duration;

fn at(millis: i64) -> Moment {
    Moment::At(Timestamp::from_millis(millis))
}

pub(crate) async fn priority_then_due_then_admission<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let mut random = Random::seeded(Random::any_seed());
    let drafts: Vec<_> = (0..60)
        .map(|_| {
            let priority = [i32::MIN, -1, 0, 1, i32::MAX][random.below(5)];
            let due = [-62_135_596_800_000, -5, 0, 1_000][random.below(4)];
            Draft::of(&queue).priority(priority).due(at(due))
        })
        .collect();
    for draft in &drafts {
        enqueue(&*store, draft.clone()).await;
    }

    let mut claimed = Vec::new();
    for limit in [1, 7, 100] {
        claimed.extend(ids(&claim(&*store, &queue, limit, LONG_LEASE).await));
    }

    let mut expected = drafts;
    let key = |draft: &Draft| match draft.task.due {
        Moment::At(due) => (std::cmp::Reverse(draft.task.priority), due),
        Moment::In(_) => unreachable!("each names an instant"),
    };
    expected.sort_by_key(key); // stable: admission decides the rest
    let expected: Vec<_> = expected.into_iter().map(|draft| draft.task.id).collect();
    assert_eq!(claimed, expected);
}

pub(crate) async fn a_batch_is_admitted_in_its_order<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let admitted = enqueue_some(&*store, &queue, 50).await;

    let claims = claim(&*store, &queue, 50, LONG_LEASE).await;

    assert_eq!(ids(&claims), admitted);
}

pub(crate) async fn a_lapsed_task_counts_from_its_leases_end<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let lapsed = enqueue(&*store, Draft::of(&queue).due(at(0))).await;
    claim_one(&*store, &queue, SHORT_LEASE).await;
    let overdue = enqueue(&*store, Draft::of(&queue).due(at(1))).await;
    lapse(SHORT_LEASE).await;
    let fresh = enqueue_one(&*store, &queue).await;
    let urgent = enqueue(&*store, Draft::of(&queue).priority(1)).await;

    let claims = claim(&*store, &queue, 10, LONG_LEASE).await;

    assert_eq!(ids(&claims), [urgent, overdue, lapsed, fresh]);
}

pub(crate) async fn a_retry_is_ordered_by_its_new_due_time<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let (first, second) = (Draft::of(&queue).due(at(1)), Draft::of(&queue).due(at(5)));
    let admitted = enqueue_all(&*store, &[first, second]).await;
    for (claimed, due) in claim(&*store, &queue, 2, LONG_LEASE).await.iter().zip([at(9), at(7)]) {
        let outcome = Outcome::Retry { attempt: failure("t"), due };
        resolve(&*store, resolution(claimed, Call::Reschedule, outcome)).await.expect("retry");
    }

    let claims = claim(&*store, &queue, 2, LONG_LEASE).await;

    assert_eq!(ids(&claims), [admitted[1].clone(), admitted[0].clone()]);
}

pub(crate) async fn a_full_queue_does_not_starve_another<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queues = [some_queue(), some_queue(), some_queue()];
    for (queue, priority) in queues.iter().zip([9, 0, -9]) {
        let drafts: Vec<_> = (0..40).map(|_| Draft::of(queue).priority(priority)).collect();
        enqueue_all(&*store, &drafts).await;
    }
    let call = |limit| ClaimParams {
        queues: queues.iter().map(claim_queue).collect(),
        ..claim_params(&queues[0], limit, LONG_LEASE)
    };

    let batch = claim_as(&*store, call(12)).await.claims;
    let mut singles = Vec::new();
    for _ in 0..30 {
        singles.extend(claim_as(&*store, call(1)).await.claims);
    }

    assert_eq!((batch.len(), singles.len()), (12, 30));
    for queue in &queues {
        let share = batch.iter().filter(|claim| claim.task.queue == *queue).count();
        assert!(share >= 2, "{share} of a batch of 12");
        let share = singles.iter().filter(|claim| claim.task.queue == *queue).count();
        assert!(share >= 1, "{share} of 30 single claims");
    }
}

/// Somebody else's claims in between, in step with ours, give neither of our queues the turn of the
/// other: they take turns strictly.
pub(crate) async fn single_claims_are_fair_beside_those_of_others<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queues = [some_queue(), some_queue()];
    let others = some_queue();
    for (queue, count) in [(&queues[0], 30), (&queues[1], 30), (&others, 90)] {
        enqueue_some(&*store, queue, count).await;
    }
    let ours = ClaimParams {
        queues: queues.iter().map(claim_queue).collect(),
        ..claim_params(&queues[0], 1, LONG_LEASE)
    };

    for between in [0, 1, 3] {
        let mut shares = [0; 2];
        for _ in 0..10 {
            let claims = claim_as(&*store, ours.clone()).await.claims;
            for (share, queue) in shares.iter_mut().zip(&queues) {
                *share += claims.iter().filter(|claim| claim.task.queue == *queue).count();
            }
            for _ in 0..between {
                claim(&*store, &others, 1, LONG_LEASE).await;
            }
        }
        assert_eq!(shares, [5, 5], "{between} in between");
    }
}

pub(crate) async fn a_claim_says_when_to_come_again<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let waits =
        async |limit| claim_as(&*store, claim_params(&queue, limit, LONG_LEASE)).await.next_due_in;
    assert_eq!(waits(1).await, None, "nothing waits");

    let later = Draft::of(&queue).due(Moment::In(Duration::from_secs(3600)));
    enqueue(&*store, later).await;
    let hour = waits(1).await.expect("a task waits");
    assert!(hour <= Duration::from_secs(3601), "{hour:?}");
    assert!(hour >= Duration::from_secs(3000), "{hour:?}");

    enqueue_some(&*store, &queue, 2).await;
    assert_eq!(waits(1).await, Some(Duration::ZERO), "more is due");
    let next = waits(1).await.expect("a lease and a delay are known");
    assert!(next <= hour && next >= Duration::from_secs(3000), "{next:?}");
}
