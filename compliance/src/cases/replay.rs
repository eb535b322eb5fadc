//! Lost answers: the same call again succeeds and changes nothing; anything else is stale.

use super::resolve::CALLS;
use crate::{Fixture, given::*};
use rdq_spi::{Call, Moment, Outcome, TaskStatus};
use std::time::Duration;

pub(crate) async fn the_same_call_again_succeeds_and_changes_nothing<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    for call in CALLS {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        let first = end(&*store, &claimed, call).await.expect("resolved");
        let before = get(&*store, &id).await;

        for store in [&store, &other, &store] {
            let again = end(&**store, &claimed, call).await.expect("replayed");
            assert!(again.replayed, "{call:?}");
            assert_eq!(again.status, first.status, "{call:?}");
            assert_eq!(again.next_attempt_at, first.next_attempt_at, "{call:?}");
        }

        assert_eq!(get(&*store, &id).await, before, "{call:?}");
    }
}

pub(crate) async fn contents_are_not_compared<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    complete(&*store, &claimed).await;

    let other = resolution(&claimed, Call::Complete, succeed(b"another result"));
    let again = resolve(&*store, other).await.expect("replayed");

    assert!(again.replayed);
    assert_eq!(get(&*store, &id).await.result, "result", "the first one stands");
}

pub(crate) async fn another_call_with_a_spent_token_is_stale<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for first in CALLS {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        end(&*store, &claimed, first).await.expect("resolved");
        let before = get(&*store, &id).await;

        for second in CALLS.into_iter().filter(|call| *call != first) {
            let answer = end(&*store, &claimed, second).await;
            assert!(is_stale(&answer), "{second:?} after {first:?}: {answer:?}");
        }

        assert_eq!(get(&*store, &id).await, before, "after {first:?}");
    }
}

pub(crate) async fn a_repeated_fail_gets_what_was_decided_first<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let retry = Outcome::Retry { attempt: failure("t"), due: Moment::In(Duration::from_secs(60)) };
    let die = Outcome::Die { attempt: failure("t") };
    for (first, second) in [(retry.clone(), die.clone()), (die, retry)] {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        let decided =
            resolve(&*store, resolution(&claimed, Call::Fail, first)).await.expect("failed");
        let before = get(&*store, &id).await;

        let again =
            resolve(&*store, resolution(&claimed, Call::Fail, second)).await.expect("replayed");

        assert!(again.replayed);
        assert_eq!(again.status, decided.status);
        assert_eq!(again.next_attempt_at, decided.next_attempt_at);
        assert_eq!(get(&*store, &id).await, before);
    }
}

pub(crate) async fn the_memory_ends_with_the_next_claim<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    for call in [Call::Reschedule, Call::Fail, Call::Release] {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let first = claim_one(&*store, &queue, LONG_LEASE).await;
        end(&*store, &first, call).await.expect("resolved");
        let next = claim_one(&*store, &queue, LONG_LEASE).await;
        let before = get(&*store, &id).await;

        let answer = end(&*store, &first, call).await;

        assert!(is_stale(&answer), "{call:?}: {answer:?}");
        assert_eq!(get(&*store, &id).await, before);
        complete(&*store, &next).await;
    }
}

pub(crate) async fn the_memory_ends_with_a_redrive_or_a_purge<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    end(&*store, &claimed, Call::DeadLetter).await.expect("dead-letter");
    redrive_all(&*store, &queue).await;
    let before = get(&*store, &id).await;

    let answer = end(&*store, &claimed, Call::DeadLetter).await;
    assert!(is_stale(&answer), "{answer:?}");
    assert_eq!(get(&*store, &id).await, before);

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    end(&*store, &claimed, Call::DeadLetter).await.expect("dead-letter");
    purge_all(&*store, &queue).await;
    let answer = end(&*store, &claimed, Call::DeadLetter).await;
    assert!(is_not_found(&answer), "{answer:?}");
}

pub(crate) async fn a_cancellation_does_not_end_the_memory<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    end(&*store, &claimed, Call::Release).await.expect("release");
    cancel(&*store, &id).await.expect("cancel");

    let again = end(&*store, &claimed, Call::Release).await;

    assert!(again.as_ref().is_ok_and(|it| it.replayed), "it was done: {again:?}");
    assert_eq!(get(&*store, &id).await.status, TaskStatus::Cancelled);
}

pub(crate) async fn one_of_many_concurrent_repetitions_does_it<F: Fixture>(fixture: F) {
    let stores = [fixture.open().await, fixture.open().await];
    for call in CALLS {
        let queue = some_queue();
        let id = enqueue_one(&*stores[0], &queue).await;
        let claimed = claim_one(&*stores[0], &queue, LONG_LEASE).await;

        let calls = (0..10).map(|i: usize| {
            let (store, claimed) = (stores[i % 2].clone(), claimed.clone());
            tokio::spawn(async move { end(&*store, &claimed, call).await.expect("resolved") })
        });
        let answers = futures::future::try_join_all(calls).await.expect("each is answered");

        let first = answers.iter().filter(|answer| !answer.replayed).count();
        assert_eq!(first, 1, "{call:?}: {answers:?}");
        let records = u32::from(call != Call::Release);
        assert_eq!(get(&*stores[0], &id).await.attempt_count, records, "{call:?}");
    }
}
