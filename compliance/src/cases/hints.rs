//! Hints: who waits for a queue hears of everything that falls due there. None is lost.

use crate::{Fixture, given::*};
use futures::StreamExt as _;
use rdq_spi::{Call, Claim, DueHints, Moment, Outcome, QueueName, Storage};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Longer than any hint takes on however slow a machine: a hint that has not come is lost. It is the
/// half of what a case may take.
const LOST: Duration = Duration::from_secs(60);

/// What is due so much later is not what a story waits for.
const FAR: Duration = Duration::from_secs(10);

/// How soon a task is due later, in these stories.
const SOON: Duration = Duration::from_millis(80);

/// Waits for the next hint.
async fn hint(hints: &mut DueHints) -> rdq_spi::DueHint {
    let next = tokio::time::timeout(LOST, hints.next()).await;
    next.expect("a hint was lost").expect("hints go on")
}

/// Claims the way a server does that relies on hints alone: each one is waited for, then tried.
async fn claim_by_hints(store: &dyn Storage, hints: &mut DueHints, queue: &QueueName) -> Claim {
    loop {
        let hint = hint(hints).await;
        assert_eq!(hint.queue, *queue, "of the queues asked for");
        if hint.due_in >= FAR {
            continue; // Of a long lease or delay; the story waits for something sooner.
        }
        tokio::time::sleep(hint.due_in).await;
        // A hint may be early by a clock's rounding; then the claim says how long it still takes.
        for _ in 0..20 {
            let mut claimed = claim_as(store, claim_params(queue, 1, SHORT_LEASE)).await;
            match (claimed.claims.pop(), claimed.next_due_in) {
                (Some(claim), _) => return claim,
                (None, Some(wait)) if wait < SOON => tokio::time::sleep(wait).await,
                (None, _) => break,
            }
        }
    }
}

/// A handle that waits for a queue, another handle, and the queue.
async fn waiting<F: Fixture>(
    fixture: &F,
) -> (Arc<dyn Storage>, Arc<dyn Storage>, QueueName, DueHints) {
    let (store, other, queue) = (fixture.open().await, fixture.open().await, some_queue());
    let hints = store.wait_due(vec![queue.clone()]).await.expect("wait_due");
    (store, other, queue, hints)
}

pub(crate) async fn one_comes_at_once_if_a_task_is_due<F: Fixture>(fixture: F) {
    let store = fixture.open().await;
    let queue = some_queue();
    let id = enqueue_one(&*store, &queue).await;

    let mut hints = store.wait_due(vec![queue.clone()]).await.expect("wait_due");

    assert_eq!(claim_by_hints(&*store, &mut hints, &queue).await.task.id, id);
}

pub(crate) async fn an_admission_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other, queue, mut hints) = waiting(&fixture).await;
    for due in [Moment::NOW, Moment::In(SOON), Moment::NOW] {
        for from in [&store, &other] {
            let id = enqueue(&**from, Draft::of(&queue).due(due)).await;
            let claimed = claim_by_hints(&*store, &mut hints, &queue).await;
            assert_eq!(claimed.task.id, id, "{due:?}");
            complete(&*store, &claimed).await;
        }
    }
}

pub(crate) async fn a_task_that_waited_before_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let queue = some_queue();
    let id = enqueue(&*other, Draft::of(&queue).due(Moment::In(SOON))).await;

    let mut hints = store.wait_due(vec![queue.clone()]).await.expect("wait_due");

    assert_eq!(claim_by_hints(&*store, &mut hints, &queue).await.task.id, id);
}

pub(crate) async fn what_comes_back_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other, queue, mut hints) = waiting(&fixture).await;
    let id = enqueue_one(&*other, &queue).await;
    let retry = |due| Outcome::Retry { attempt: failure("t"), due };
    for (call, outcome) in [
        (Call::Release, Outcome::GiveBack { due: Moment::NOW }),
        (Call::Release, Outcome::GiveBack { due: Moment::In(SOON) }),
        (Call::Reschedule, retry(Moment::NOW)),
        (Call::Reschedule, retry(Moment::In(SOON))),
        (Call::Fail, retry(Moment::In(SOON))),
    ] {
        let claimed = claim_by_hints(&*store, &mut hints, &queue).await;
        assert_eq!(claimed.task.id, id);
        // The lease may be over on a slow machine; then the task comes back by that.
        drop(resolve(&*other, resolution(&claimed, call, outcome)).await);
    }
    let claimed = claim_by_hints(&*store, &mut hints, &queue).await;
    assert_eq!(claimed.task.id, id);
}

pub(crate) async fn a_lapse_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other, queue, mut hints) = waiting(&fixture).await;
    let id = enqueue_one(&*other, &queue).await;
    for lapses in 0..3 {
        let claimed = claim_by_hints(&*store, &mut hints, &queue).await;
        assert_eq!((&claimed.task.id, claimed.task.lease_expired_count), (&id, lapses));
    }
}

pub(crate) async fn a_heartbeat_that_shortens_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other, queue, mut hints) = waiting(&fixture).await;
    enqueue_one(&*other, &queue).await;
    let held = claim_one(&*other, &queue, LONG_LEASE).await;

    extend(&*other, heartbeat(&held, SOON)).await.expect("extend");

    let claimed = claim_by_hints(&*store, &mut hints, &queue).await;
    assert_eq!(claimed.task.lease_expired_count, 1);
}

pub(crate) async fn a_redrive_is_heard_of<F: Fixture>(fixture: F) {
    let (store, other, queue, mut hints) = waiting(&fixture).await;
    let id = dead_letter(&*other, Draft::of(&queue), "t").await;

    redrive_all(&*other, &queue).await;

    let claimed = claim_by_hints(&*store, &mut hints, &queue).await;
    assert_eq!((claimed.task.id, claimed.task.redrive_count), (id, 1));
}

pub(crate) async fn nobody_who_waits_misses_it<F: Fixture>(fixture: F) {
    let (store, other) = (fixture.open().await, fixture.open().await);
    let (queue, second) = (some_queue(), some_queue());
    let mut waiting = Vec::new();
    for handle in [&store, &store, &other] {
        let queues = vec![queue.clone(), second.clone()];
        waiting.push(handle.wait_due(queues).await.expect("wait_due"));
    }

    enqueue_one(&*other, &queue).await;
    enqueue_one(&*store, &second).await;

    for hints in &mut waiting {
        let mut heard = HashSet::new();
        while heard.len() < 2 {
            heard.insert(hint(hints).await.queue);
        }
        assert_eq!(heard, HashSet::from([queue.clone(), second.clone()]));
    }
}

pub(crate) async fn a_burst_is_worked_off_by_hints_alone<F: Fixture>(fixture: F) {
    let (store, other, queue, mut hints) = waiting(&fixture).await;
    let producer = {
        let queue = queue.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                enqueue_some(&*other, &queue, 2).await;
                tokio::task::yield_now().await;
            }
        })
    };
    let mut done = 0;
    while done < 50 {
        let hint = hint(&mut hints).await;
        tokio::time::sleep(hint.due_in.min(SOON)).await;
        // Everything that is due now: later hints are about what comes later.
        loop {
            let claims = claim(&*store, &queue, 7, LONG_LEASE).await;
            if claims.is_empty() {
                break;
            }
            for claimed in claims {
                complete(&*store, &claimed).await;
                done += 1;
            }
        }
    }
    producer.await.expect("the producer");
}
