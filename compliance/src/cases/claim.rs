//! Claims: who gets what, and nobody twice.

use crate::{Fixture, given::*};
use rdq_spi::{ClaimParams, TaskStatus};
use std::{collections::HashSet, time::Duration};

pub(crate) async fn a_task_is_handed_out_once<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    let task = enqueue_one(&*store, &queue).await;

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    assert_eq!(claimed.task.id, task);
    assert_eq!(claim(&*store, &queue, 10, LONG_LEASE).await, []);
    assert_eq!(claim(&*other, &queue, 10, LONG_LEASE).await, []);
    assert_eq!(get(&*other, &task).await.status, TaskStatus::InFlight);
}

pub(crate) async fn claims_of_one_call_share_no_task<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_some(&*store, &queue, 10).await;

    let calls = (0..4).map(|_| claim_params(&queue, 3, LONG_LEASE)).collect();
    let answers = store.claim_due(calls).await.expect("claim_due");

    let claims: Vec<_> = answers.into_iter().flat_map(|it| it.expect("a claim").claims).collect();
    let tasks: HashSet<_> = ids(&claims).into_iter().collect();
    assert_eq!((claims.len(), tasks.len()), (10, 10), "each task once, all of them");
}

pub(crate) async fn a_claim_takes_from_its_queues_alone<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queues = [some_queue(), some_queue(), some_queue()];
    let mut admitted = Vec::new();
    for queue in &queues {
        admitted.push(enqueue_one(&*store, queue).await);
    }

    let call = ClaimParams {
        queues: queues[..2].iter().map(claim_queue).collect(),
        ..claim_params(&queues[0], 10, LONG_LEASE)
    };
    let claims = claim_as(&*store, call).await.claims;

    let tasks: HashSet<_> = ids(&claims).into_iter().collect();
    assert_eq!(tasks, admitted[..2].iter().cloned().collect());
    assert_eq!(get(&*store, &admitted[2]).await.status, TaskStatus::Pending);
}

pub(crate) async fn a_claim_shows_what_it_left<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    enqueue_one(&*store, &queue).await;

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    let task = get(&*store, &claimed.task.id).await;
    assert_eq!(claimed.task, task);
    assert_eq!(task.claimed_by, Some(worker("worker")));
    assert_eq!(task.next_attempt_at, None);
    assert_eq!((task.attempt_count, task.attempts.len()), (0, 0), "a claim spends nothing yet");
    let claimed_at = task.claimed_at.expect("in flight");
    assert_eq!(task.lease_expires_at, Some(claimed_at.after(LONG_LEASE)));
    assert!(claimed_at >= task.created_at);
    assert_eq!(claimed.lease, LONG_LEASE);
}

pub(crate) async fn nothing_due_is_an_empty_answer<F: Fixture>(fixture: F) {
    let store = fixture.open().await;

    let claimed = claim_as(&*store, claim_params(&some_queue(), 10, LONG_LEASE)).await;

    assert_eq!(claimed, rdq_spi::Claimed::default());
}

pub(crate) async fn a_task_with_spent_attempts_is_handed_out<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let spent = Draft::of(&queue).with(|task| {
        task.overrides.max_attempts = Some(1);
        task.attempt_count = 7;
    });
    let task = enqueue(&*store, spent).await;

    let claimed = claim_one(&*store, &queue, LONG_LEASE).await;

    assert_eq!((claimed.task.id, claimed.task.attempt_count), (task, 7), "a storage has no policy");
}

pub(crate) async fn the_workers_lease_wins_then_the_tasks_then_the_queues<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let (of_worker, of_task, of_queue) =
        (Duration::from_secs(100), Duration::from_secs(200), Duration::from_secs(300));
    for (worker, task, max, expected) in [
        (Some(of_worker), Some(of_task), 1_000, of_worker),
        (None, Some(of_task), 1_000, of_task),
        (None, None, 1_000, of_queue),
        (Some(of_worker), None, 50, Duration::from_secs(50)),
        (None, Some(of_task), 50, Duration::from_secs(50)),
        (None, None, 50, Duration::from_secs(50)),
    ] {
        let queue = some_queue();
        enqueue(&*store, Draft::of(&queue).with(|new| new.overrides.lease = task)).await;
        let mut call = ClaimParams { lease: worker, ..claim_params(&queue, 1, LONG_LEASE) };
        (call.queues[0].lease, call.queues[0].lease_max) = (of_queue, Duration::from_secs(max));

        let claimed = claim_as(&*store, call).await.claims.remove(0);

        assert_eq!(claimed.lease, expected);
        let claimed_at = claimed.task.claimed_at.expect("in flight");
        assert_eq!(claimed.task.lease_expires_at, Some(claimed_at.after(expected)));
    }
}

pub(crate) async fn generations_grow_over_purge_and_readmission<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue);
    let (mut last, mut tokens) = (i64::MIN, HashSet::new());
    for life in 0..4 {
        enqueue(&*store, draft.clone()).await;
        for _ in 0..life {
            let released = claim_one(&*store, &queue, LONG_LEASE).await;
            assert!(released.generation > last, "{} after {last}", released.generation);
            last = released.generation;
            assert!(tokens.insert(released.token.clone()), "a token is never minted twice");
            end(&*store, &released, rdq_spi::Call::Release).await.expect("release");
        }
        let claimed = claim_one(&*store, &queue, LONG_LEASE).await;
        assert!(claimed.generation > last, "{} after {last}", claimed.generation);
        last = claimed.generation;
        assert!(tokens.insert(claimed.token.clone()), "a token is never minted twice");
        end(&*store, &claimed, rdq_spi::Call::DeadLetter).await.expect("dead-letter");
        purge_all(&*store, &queue).await;
    }
}

pub(crate) async fn tokens_of_an_earlier_life_are_stale<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let draft = Draft::of(&queue);
    enqueue(&*store, draft.clone()).await;
    let earlier = claim_one(&*store, &queue, LONG_LEASE).await;
    end(&*store, &earlier, rdq_spi::Call::DeadLetter).await.expect("dead-letter");
    purge_all(&*store, &queue).await;
    enqueue(&*store, draft).await;
    claim_one(&*store, &queue, LONG_LEASE).await;
    let before = get(&*store, &earlier.task.id).await;

    for call in super::resolve::CALLS {
        let answer = end(&*store, &earlier, call).await;
        assert!(is_stale(&answer), "{call:?}: {answer:?}");
    }

    assert_eq!(get(&*store, &earlier.task.id).await, before);
}
