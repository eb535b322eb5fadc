//! The storage's clock: instants are exact, and it never runs backwards.

use crate::{Fixture, given::*};
use rdq_spi::{Call, Moment, Outcome, QueueConfig, Timestamp};
use std::time::Duration;

pub(crate) async fn instants_are_exact_from_year_1_to_9999<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let extremes = [Timestamp::MIN, Timestamp::from_millis(-1), Timestamp::MAX];
    for instant in extremes.into_iter().chain([Timestamp::from_millis(1_234_567_890_123)]) {
        let queue = some_queue();
        let draft = Draft::of(&queue).due(Moment::At(instant)).with(|task| {
            task.created_at = Some(instant);
            task.expires = Some(Moment::At(instant));
        });
        let id = enqueue(&*store, draft).await;

        let task = get(&*store, &id).await;

        assert_eq!(task.created_at, instant);
        assert_eq!((task.next_attempt_at, task.expires_at), (Some(instant), Some(instant)));
    }
}

pub(crate) async fn a_delay_beyond_the_year_9999_is_cut<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let ages = Moment::In(Duration::from_secs(9_000 * 366 * 86_400));
    let draft = Draft::of(&queue).due(ages).with(|task| task.expires = Some(ages));
    let id = enqueue(&*store, draft).await;
    let task = get(&*store, &id).await;
    assert_eq!(task.next_attempt_at, Some(Timestamp::MAX));
    assert_eq!(task.expires_at, Some(Timestamp::MAX));

    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    let outcome = Outcome::Retry { attempt: failure("t"), due: ages };
    resolve(&*store, resolution(&claimed, Call::Reschedule, outcome)).await.expect("reschedule");
    assert_eq!(get(&*store, &id).await.next_attempt_at, Some(Timestamp::MAX));
    assert_eq!(claim(&*store, &queue, 10, LONG_LEASE).await, []);
}

pub(crate) async fn durations_are_rounded_up<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue).due(Moment::In(Duration::from_micros(3_600_000_001)));
    let id = enqueue(&*store, draft).await;

    let task = get(&*store, &id).await;

    let least = task.created_at.after(Duration::from_millis(3_600_001));
    assert!(task.next_attempt_at >= Some(least), "{task:?}");
}

pub(crate) async fn it_never_runs_backwards<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    let queue = some_queue();
    let mut last = Timestamp::MIN;
    let mut tick = |what: &str, now: Timestamp| {
        assert!(now >= last, "{what} at {now:?}, after {last:?}");
        last = now;
    };
    for round in 0..10 {
        let (store, other) = (&stores[round % 2], &stores[(round + 1) % 2]);
        let id = enqueue_one(&**store, &queue).await;
        tick("admitted", get(&**other, &id).await.created_at);
        let claimed = claim_one(&**other, &queue, LONG_LEASE).await;
        tick("claimed", claimed.task.claimed_at.expect("in flight"));
        let due = end(&**store, &claimed, Call::Reschedule).await.expect("retry").next_attempt_at;
        tick("retried", due.expect("pending"));
        let claimed = claim_one(&**other, &queue, LONG_LEASE).await;
        complete(&**store, &claimed).await;
        tick("completed", get(&**other, &id).await.finished_at.expect("succeeded"));
    }
    let record = stores[0].put_queue(queue, QueueConfig::default()).await.expect("put_queue");
    tick("configured", record.updated_at);
}
