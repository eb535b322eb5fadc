//! Leases: kept, lapsed, reclaimed.

use crate::{Fixture, given::*};
use bytes::Bytes;
use rdq_spi::{AttemptError, AttemptOutcome, Call, ExtendParams, TaskStatus};
use std::time::Duration;

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
    assert_eq!((task.attempts.len(), task.last_attempt_no), (1, 1));
    let record = task.attempts.last().expect("a record");
    assert_eq!(record.attempt_no, 1);
    assert_eq!(record.outcome, Some(AttemptOutcome::LeaseExpired));
    assert_eq!(record.worker_id, slow.task.claimed_by, "the record is about the one that lapsed");
    assert_eq!(record.started_at, slow.task.claimed_at);
    assert!(record.finished_at >= slow.task.lease_expires_at, "{record:?}");
    let error_type = record.error.as_ref().map(|error| error.error_type.as_str());
    assert_eq!(error_type, Some(AttemptError::LEASE_EXPIRED));
    assert_eq!(quick.task.attempts.len(), 1, "the claim shows it too");
}

pub(crate) async fn a_lease_that_runs_is_not_reclaimed<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    lapse(SHORT_LEASE).await;

    assert_eq!(claim(&*other, &queue, 1, LONG_LEASE).await, []);

    let task = complete(&*store, &claimed).await;
    assert_eq!(task.status, TaskStatus::Succeeded);
    let task = get(&*store, &claimed.task.id).await;
    assert_eq!((task.attempt_count, task.lease_expired_count), (1, 0));
}

pub(crate) async fn every_lapse_is_recorded<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let lease = Duration::from_millis(20);
    for _ in 0..4 {
        claim_one(&*store, &queue, lease).await;
        lapse(lease).await;
    }
    let last = claim_one(&*store, &queue, LONG_LEASE).await;
    complete(&*store, &last).await;

    let task = get(&*store, &id).await;

    assert_eq!((task.attempt_count, task.lease_expired_count), (5, 4));
    let numbers: Vec<_> = task.attempts.iter().map(|record| record.attempt_no).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

pub(crate) async fn a_heartbeat_resets_the_lease_both_ways<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    let longer = extend(&*store, heartbeat(&claimed, 2 * LONG_LEASE)).await.expect("extend");
    assert!(Some(longer.lease_expires_at) > claimed.task.lease_expires_at);
    assert!(longer.remaining > LONG_LEASE && longer.remaining <= 2 * LONG_LEASE, "{longer:?}");
    assert_eq!(get(&*store, &id).await.lease_expires_at, Some(longer.lease_expires_at));

    let shorter = extend(&*store, heartbeat(&claimed, SHORT_LEASE)).await.expect("extend");
    assert!(shorter.lease_expires_at < longer.lease_expires_at, "an absolute reset");
    lapse(SHORT_LEASE).await;
    let next = claim_one(&*store, &queue, LONG_LEASE).await;
    assert_eq!(next.task.lease_expired_count, 1);
    assert!(is_stale(&extend(&*store, heartbeat(&claimed, LONG_LEASE)).await));
}

pub(crate) async fn a_heartbeat_after_the_lapse_keeps_the_claim<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;

    extend(&*store, heartbeat(&claimed, LONG_LEASE)).await.expect("nobody reclaimed it");

    assert_eq!(claim(&*store, &queue, 1, LONG_LEASE).await, []);
    complete(&*store, &claimed).await;
    assert_eq!(get(&*store, &id).await.lease_expired_count, 0);
}

pub(crate) async fn a_checkpoint_is_kept_replaced_and_cleared<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let mut claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    for (sent, kept) in [
        (Some("one"), "one"),
        (None, "one"),
        (Some("two"), "two"),
        (Some(""), ""),
        (Some("three"), "three"),
    ] {
        let progress = sent.map(|text| Bytes::from_static(text.as_bytes()));
        let beat = ExtendParams { progress, ..heartbeat(&claimed, LONG_LEASE) };
        extend(&*store, beat).await.expect("extend");
        assert_eq!(get(&*store, &id).await.progress, kept, "after {sent:?}");
    }

    end(&*store, &claimed, Call::Reschedule).await.expect("reschedule");
    claimed = claim_one(&*store, &queue, SHORT_LEASE).await;
    assert_eq!(claimed.task.progress, "three", "kept through a retry");
    lapse(SHORT_LEASE).await;
    claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    assert_eq!(claimed.task.progress, "three", "kept through a lapse");
}

pub(crate) async fn a_resolved_claim_is_not_extended<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for call in super::resolve::CALLS {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        end(&*store, &claimed, call).await.expect("resolved");
        let before = get(&*store, &id).await;

        let beat = ExtendParams { progress: Some("x".into()), ..heartbeat(&claimed, LONG_LEASE) };
        let answer = extend(&*store, beat).await;

        assert!(is_stale(&answer), "{call:?}: {answer:?}");
        assert_eq!(get(&*store, &id).await, before);
    }
}

pub(crate) async fn no_heartbeat_reaches_beyond_held_max<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, Duration::from_secs(60)).await;
    let held_max = Some(Duration::from_secs(100));
    let claimed_at = claimed.task.claimed_at.expect("in flight");

    let beat = ExtendParams { held_max, ..heartbeat(&claimed, LONG_LEASE) };
    let capped = extend(&*store, beat).await.expect("extend");
    assert_eq!(capped.lease_expires_at, claimed_at.after(Duration::from_secs(100)));
    assert!(capped.remaining <= Duration::from_secs(100));

    let beat = ExtendParams { held_max, ..heartbeat(&claimed, Duration::from_secs(10)) };
    let within = extend(&*store, beat).await.expect("extend");
    assert!(within.lease_expires_at < capped.lease_expires_at, "within the bound, as asked");
}

pub(crate) async fn a_strict_heartbeat_after_the_lapse_is_stale<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    let strict = |lease| ExtendParams { strict: true, ..heartbeat(&claimed, lease) };

    extend(&*store, strict(SHORT_LEASE)).await.expect("in time");
    lapse(SHORT_LEASE).await;
    let before = get(&*store, &id).await;
    let answer = extend(&*store, strict(LONG_LEASE)).await;

    assert!(is_stale(&answer), "{answer:?}");
    assert_eq!(get(&*store, &id).await, before);
}

pub(crate) async fn heartbeats_of_a_batch_are_answered_each<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 3).await;
    let claims = claim(&*store, &queue, 3, LONG_LEASE).await;
    complete(&*store, &claims[1]).await;
    let mut missing = heartbeat(&claims[0], LONG_LEASE);
    missing.claim.task_id = some_id();

    let mut beats: Vec<_> = claims.iter().map(|it| heartbeat(it, 2 * LONG_LEASE)).collect();
    beats.push(missing);
    let answers = store.extend_leases(beats).await.expect("extend_leases");

    assert_eq!(answers.len(), 4);
    assert!(answers[0].is_ok() && is_stale(&answers[1]) && answers[2].is_ok(), "{answers:?}");
    assert!(is_not_found(&answers[3]), "{answers:?}");
}

pub(crate) async fn live_claims_are_told_from_dead_ones<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 5).await;
    let claims = claim(&*store, &queue, 4, LONG_LEASE).await;
    let lapsed = claim_one(&*store, &queue, SHORT_LEASE).await;
    complete(&*store, &claims[1]).await;
    end(&*store, &claims[2], Call::Release).await.expect("release");
    claim_one(&*store, &queue, LONG_LEASE).await;
    cancel(&*store, &claims[3].task.id).await.expect("cancel");
    lapse(SHORT_LEASE).await;

    let mut asked: Vec<_> = claims.iter().chain([&lapsed]).map(claim_ref).collect();
    asked.push(rdq_spi::ClaimRef { task_id: some_id(), token: claims[0].token.clone() });
    let answers = store.live_claims(asked).await.expect("live_claims");

    let left = answers[0].expect("the first is live");
    assert!(left <= LONG_LEASE && left > LONG_LEASE / 2, "{left:?}");
    assert_eq!(answers[1..], [None; 5], "resolved, superseded, cancelled, lapsed, unknown");
}
