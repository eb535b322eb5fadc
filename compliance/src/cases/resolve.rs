//! The ends of claims, and tokens that are no longer good.

use crate::{Fixture, given::*};
use bytes::Bytes;
use rdq_spi::{
    AttemptOutcome, Call, ClaimToken, Moment, Outcome, Resolution, TaskStatus, Timestamp,
};
use std::time::Duration;

/// Every call that ends a claim.
pub(crate) const CALLS: [Call; 5] =
    [Call::Complete, Call::Reschedule, Call::DeadLetter, Call::Fail, Call::Release];

pub(crate) async fn each_call_leaves_what_it_says<F: Fixture>(fixture: F) {
    use {AttemptOutcome as A, TaskStatus as S};
    let store = fixture.open().await;
    for (call, status, outcome) in [
        (Call::Complete, S::Succeeded, Some(A::Success)),
        (Call::Reschedule, S::Pending, Some(A::RetryableFailure)),
        (Call::Fail, S::Pending, Some(A::RetryableFailure)),
        (Call::DeadLetter, S::Dead, Some(A::PermanentFailure)),
        (Call::Release, S::Pending, None),
    ] {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

        let answer = end(&*store, &claimed, call).await.expect("a good token");

        let task = get(&*store, &id).await;
        assert_eq!(
            (answer.status, task.status, answer.replayed),
            (status, status, false),
            "{call:?}"
        );
        assert_eq!(answer.next_attempt_at, task.next_attempt_at, "{call:?}");
        assert_eq!(task.next_attempt_at.is_some(), status == S::Pending, "{call:?}");
        assert_eq!(task.finished_at.is_some(), status.is_terminal(), "{call:?}");
        let claim = (task.claimed_at, task.claimed_by, task.lease_expires_at);
        assert_eq!(claim, (None, None, None), "{call:?}");
        let records: Vec<_> = task.attempts.iter().map(|record| record.outcome).collect();
        assert_eq!(records, Vec::from_iter(outcome.map(Some)), "{call:?}");
        assert_eq!(task.attempt_count, u32::from(outcome.is_some()), "{call:?}");
        if let Some(record) = task.attempts.first() {
            assert_eq!((record.attempt_no, &record.worker_id), (1, &claimed.task.claimed_by));
            assert_eq!(record.started_at, claimed.task.claimed_at);
            assert!(record.finished_at >= record.started_at, "{record:?}");
            let error = failure("t").error.filter(|_| call != Call::Complete);
            assert_eq!(record.error, error, "{call:?}");
        }
        assert_eq!(task.result, if call == Call::Complete { "result" } else { "" });
    }
}

pub(crate) async fn a_retry_is_due_when_the_call_says<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let hour = Duration::from_secs(3600);
    let far = Timestamp::from_millis(4_102_444_800_123);
    let retry = |due| Outcome::Retry { attempt: failure("t"), due };
    for (call, outcome, exact) in [
        (Call::Reschedule, retry(Moment::At(far)), Some(far)),
        (Call::Reschedule, retry(Moment::In(hour)), None),
        (Call::Fail, retry(Moment::In(hour)), None),
        (Call::Release, Outcome::GiveBack { due: Moment::In(hour) }, None),
    ] {
        let queue = some_queue();
        let id = enqueue_one(&*store, &queue).await;
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

        let answer = resolve(&*store, resolution(&claimed, call, outcome)).await.expect("resolved");

        let due = answer.next_attempt_at.expect("pending");
        assert_eq!(get(&*store, &id).await.next_attempt_at, Some(due));
        match exact {
            Some(exact) => assert_eq!(due, exact),
            None => {
                assert!(due >= claimed.task.claimed_at.expect("claimed").after(hour), "{due:?}");
            }
        }
        assert_eq!(claim(&*store, &queue, 1, LONG_LEASE).await, [], "not due yet");
    }
}

pub(crate) async fn a_release_is_never_due_before_now<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    let outcome = Outcome::GiveBack { due: Moment::At(Timestamp::MIN) };
    let answer = resolve(&*store, resolution(&claimed, Call::Release, outcome)).await;

    let due = answer.expect("released").next_attempt_at;
    assert!(due >= claimed.task.claimed_at, "{due:?}");
    assert_eq!(claim(&*store, &queue, 1, LONG_LEASE).await.len(), 1);
}

pub(crate) async fn a_release_gives_the_attempt_out_again<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;
    for _ in 0..3 {
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        assert_eq!(claimed.task.last_attempt_no, 0);
        end(&*store, &claimed, Call::Release).await.expect("release");
    }

    let task = get(&*store, &id).await;

    assert_eq!((task.attempt_count, task.attempts.len(), task.last_attempt_no), (0, 0, 0));
}

pub(crate) async fn a_stale_token_changes_nothing<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let task = enqueue_one(&*store, &queue).await;
    let slow = claim_one(&*store, &queue, SHORT_LEASE).await;
    lapse(SHORT_LEASE).await;
    let quick = claim_one(&*store, &queue, LONG_LEASE).await;
    let before = get(&*store, &task).await;

    for call in CALLS {
        let answer = end(&*store, &slow, call).await;
        assert!(is_stale(&answer), "{call:?}: {answer:?}");
    }
    let answer = extend(&*store, heartbeat(&slow, LONG_LEASE)).await;

    assert!(is_stale(&answer), "{answer:?}");
    assert_eq!(get(&*store, &task).await, before);
    complete(&*store, &quick).await;
}

pub(crate) async fn a_token_that_was_never_issued_is_stale<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 2).await;
    let [mine, other] = &claim(&*store, &queue, 2, LONG_LEASE).await[..] else { panic!("two") };
    let mut bent = mine.token.0.to_vec();
    bent[0] ^= 0x80;
    let mut long = mine.token.0.to_vec();
    long.push(0);
    let cut = mine.token.0.slice(..mine.token.0.len() - 1);
    let huge = vec![7; 100_000];
    let before = get(&*store, &mine.task.id).await;

    for token in [other.token.0.clone(), bent.into(), long.into(), cut, huge.into(), "\0".into()] {
        let forged = rdq_spi::Claim { token: ClaimToken(token.clone()), ..mine.clone() };
        for call in CALLS {
            let answer = end(&*store, &forged, call).await;
            assert!(is_stale(&answer), "{call:?} with {} bytes: {answer:?}", token.len());
        }
        let answer = extend(&*store, heartbeat(&forged, LONG_LEASE)).await;
        assert!(is_stale(&answer), "{answer:?}");
        let live = store.live_claims(vec![claim_ref(&forged)]).await.expect("live_claims");
        assert_eq!(live, [None]);
    }
    assert_eq!(get(&*store, &mine.task.id).await, before);
}

pub(crate) async fn a_missing_task_is_not_found<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let mut claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    claimed.task.id = some_id();

    for call in CALLS {
        let answer = end(&*store, &claimed, call).await;
        assert!(is_not_found(&answer), "{call:?}: {answer:?}");
    }
    assert!(is_not_found(&extend(&*store, heartbeat(&claimed, LONG_LEASE)).await));
    assert!(is_not_found(&store.get(claimed.task.id.clone()).await));
    assert!(is_not_found(&cancel(&*store, &claimed.task.id).await));
}

pub(crate) async fn a_token_is_good_after_its_lease_until_the_reclaim<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let mut slow = Vec::new();
    for _ in CALLS {
        let queue = some_queue();
        enqueue_one(&*store, &queue).await;
        slow.push(claim_one(&*store, &queue, SHORT_LEASE).await);
    }
    lapse(SHORT_LEASE).await;

    for (call, slow) in CALLS.into_iter().zip(slow) {
        let answer = end(&*store, &slow, call).await;

        assert!(answer.as_ref().is_ok_and(|resolved| !resolved.replayed), "{call:?}: {answer:?}");
        let task = get(&*store, &slow.task.id).await;
        assert_ne!(task.status, TaskStatus::InFlight, "{call:?}");
        assert_eq!(task.lease_expired_count, 0, "{call:?}");
    }
}

pub(crate) async fn a_strict_token_is_stale_from_the_deadline_on<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let mut late = Vec::new();
    for _ in CALLS {
        let queue = some_queue();
        enqueue_one(&*store, &queue).await;
        late.push(claim_one(&*store, &queue, SHORT_LEASE).await);
    }
    lapse(SHORT_LEASE).await;
    for (call, late) in CALLS.into_iter().zip(late) {
        let before = get(&*store, &late.task.id).await;

        let strict = Resolution { strict: true, ..resolution(&late, call, usual_outcome(call)) };
        let answer = resolve(&*store, strict).await;

        assert!(is_stale(&answer), "{call:?}: {answer:?}");
        assert_eq!(get(&*store, &late.task.id).await, before);
    }
}

pub(crate) async fn what_was_done_in_time_is_replayed_strictly_too<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;
    let claimed = claim_one(&*store, &queue, Duration::from_secs(1)).await;
    let outcome = usual_outcome(Call::Complete);
    let strict = Resolution { strict: true, ..resolution(&claimed, Call::Complete, outcome) };
    let first = resolve(&*store, strict.clone()).await;
    if is_stale(&first) {
        return; // A machine so slow that the lease is over already.
    }
    lapse(Duration::from_secs(1)).await;

    let again = resolve(&*store, strict).await;

    assert!(again.as_ref().is_ok_and(|it| it.replayed), "{again:?}");
}

pub(crate) async fn resolutions_of_a_batch_are_answered_each<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 4).await;
    let claims = claim(&*store, &queue, 4, LONG_LEASE).await;
    cancel(&*store, &claims[1].task.id).await.expect("cancel");
    let mut missing = claims[0].clone();
    missing.task.id = some_id();

    let batch = [
        (&claims[0], Call::Complete),
        (&claims[1], Call::Complete),
        (&missing, Call::Complete),
        (&claims[2], Call::DeadLetter),
        (&claims[3], Call::Reschedule),
        (&claims[0], Call::Complete),
        (&claims[2], Call::Complete),
    ];
    let batch = batch.map(|(claim, call)| resolution(claim, call, usual_outcome(call)));
    let answers = store.resolve(batch.to_vec()).await.expect("resolve");

    assert_eq!(answers.len(), 7);
    let done = |i: usize, status, replayed| {
        let answer = &answers[i];
        assert!(
            answer.as_ref().is_ok_and(|it| (it.status, it.replayed) == (status, replayed)),
            "{i}: {answer:?}"
        );
    };
    done(0, TaskStatus::Succeeded, false);
    assert!(is_stale(&answers[1]), "{answers:?}");
    assert!(is_not_found(&answers[2]), "{answers:?}");
    done(3, TaskStatus::Dead, false);
    done(4, TaskStatus::Pending, false);
    done(5, TaskStatus::Succeeded, true);
    assert!(is_stale(&answers[6]), "another call with a spent token: {answers:?}");
}

pub(crate) async fn a_forgotten_task_is_gone_at_once<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue);
    let id = enqueue(&*store, draft.clone()).await;
    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
    let outcome = Outcome::Succeed {
        attempt: rdq_spi::AttemptReport::default(),
        result: Bytes::new(),
        forget: true,
    };

    let answer = resolve(&*store, resolution(&claimed, Call::Complete, outcome.clone())).await;

    assert_eq!(answer.expect("completed").status, TaskStatus::Succeeded);
    assert!(is_not_found(&store.get(id).await));
    let again = resolve(&*store, resolution(&claimed, Call::Complete, outcome)).await;
    assert!(is_not_found(&again), "{again:?}");
    enqueue(&*store, draft).await;
    let next = claim_one(&*store, &queue, LONG_LEASE).await;
    assert!(next.generation > claimed.generation);
}
