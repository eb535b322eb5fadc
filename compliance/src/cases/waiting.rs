//! Claims that wait: they get what the store's calls make due, whoever made it, and take nothing
//! once nobody waits for them. What falls due by the clock alone is a matter of hints.

use crate::{Fixture, given::*};
use rdq_spi::{Awaited, Call, Claim, ClaimParams, Storage, TaskStatus};
use std::{collections::HashSet, sync::Arc, time::Duration};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than any answer takes on however slow a machine. It is the half of what a case may take.
const LOST: Duration = Duration::from_secs(60);

/// What a call that waits gets to do so, or to take what it must not. The stories hold without, too.
const A_WHILE: Duration = Duration::from_millis(20);

/// Makes a claim that waits.
async fn wait_for(store: &Arc<dyn Storage>, params: Vec<ClaimParams>) -> Waiting {
    let (store, enough) = (Arc::clone(store), CancellationToken::new());
    let until = enough.clone();
    let answer = tokio::spawn(async move { store.claim_when_due(params, until).await });
    tokio::time::sleep(A_WHILE).await;
    Waiting { answer, enough }
}

struct Waiting {
    answer: JoinHandle<rdq_spi::Result<Awaited>>,
    enough: CancellationToken,
}

impl Waiting {
    async fn claims(self) -> Vec<Claim> {
        let answer = tokio::time::timeout(LOST, self.answer).await.expect("it waits for ever");
        let answer = answer.expect("it does not panic").expect("claim_when_due");
        answer.claims.into_iter().flat_map(|claimed| claimed.expect("a claim").claims).collect()
    }

    async fn end(self) -> Vec<Claim> {
        self.enough.cancel();
        self.claims().await
    }
}

pub(crate) async fn one_gets_what_is_admitted<F: Fixture>(fixture: F) {
    let (store, queue) = (fixture.open().await, some_queue());
    let waiting = wait_for(&store, vec![claim_params(&queue, 10, LONG_LEASE)]).await;

    let id = enqueue_one(&*store, &queue).await;

    let claims = waiting.claims().await;
    let [claimed] = claims.as_slice() else { panic!("one claim, not {claims:?}") };
    assert_eq!((&claimed.task.id, claimed.lease), (&id, LONG_LEASE));
    let task = store.get(id).await.expect("get");
    assert_eq!(task, claimed.task, "as the claim left it");
    assert_eq!(task.status, TaskStatus::InFlight);
    assert!(claim(&*store, &queue, 1, LONG_LEASE).await.is_empty(), "it is held");
    complete(&*store, claimed).await;
}

pub(crate) async fn they_get_what_a_claim_would_have<F: Fixture>(fixture: F) {
    let (store, queue, other) = (fixture.open().await, some_queue(), some_queue());
    let params = |limit| claim_params(&queue, limit, LONG_LEASE);
    let waiting = wait_for(&store, vec![params(2), params(3)]).await;

    enqueue_one(&*store, &other).await;
    let drafts: Vec<_> = (0..9).map(|n| Draft::of(&queue).priority(n % 3)).collect();
    enqueue_all(&*store, &drafts).await;

    let claims = waiting.claims().await;
    assert!((1..=5).contains(&claims.len()), "{} claims", claims.len());
    let priorities: Vec<_> = claims.iter().take(2).map(|claim| claim.task.priority).collect();
    assert_eq!(priorities, vec![2; claims.len().min(2)], "the first come first");
    let rest = claim(&*store, &queue, 100, LONG_LEASE).await;
    let ids = claims.iter().chain(&rest).map(|claim| claim.task.id.clone());
    assert_eq!(ids.collect::<HashSet<_>>().len(), 9, "each once");
    assert_eq!(claims.len() + rest.len(), 9, "none is lost");
    assert_eq!(claim(&*store, &other, 100, LONG_LEASE).await.len(), 1, "of its queues alone");
}

pub(crate) async fn one_gets_what_comes_back<F: Fixture>(fixture: F) {
    let (store, queue) = (fixture.open().await, some_queue());
    enqueue_one(&*store, &queue).await;
    let mut held = claim_one(&*store, &queue, LONG_LEASE).await;
    for call in [Call::Release, Call::Reschedule] {
        let waiting = wait_for(&store, vec![claim_params(&queue, 1, LONG_LEASE)]).await;
        end(&*store, &held, call).await.expect("it is held");
        let again = waiting.claims().await.remove(0);
        assert!(again.generation > held.generation);
        held = again;
    }
    end(&*store, &held, Call::DeadLetter).await.expect("it is held");
    let waiting = wait_for(&store, vec![claim_params(&queue, 1, LONG_LEASE)]).await;
    redrive_all(&*store, &queue).await;
    assert_eq!(waiting.claims().await.remove(0).task.redrive_count, 1);
}

pub(crate) async fn one_that_has_waited_enough_takes_nothing<F: Fixture>(fixture: F) {
    let (store, queue) = (fixture.open().await, some_queue());
    let waiting = wait_for(&store, vec![claim_params(&queue, 10, LONG_LEASE)]).await;
    assert_eq!(waiting.end().await, vec![]);

    enqueue_one(&*store, &queue).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(claim(&*store, &queue, 10, LONG_LEASE).await.len(), 1);
}

pub(crate) async fn one_whose_caller_is_gone_keeps_nothing<F: Fixture>(fixture: F) {
    let (store, queue) = (fixture.open().await, some_queue());
    let waiting = wait_for(&store, vec![claim_params(&queue, 10, LONG_LEASE)]).await;
    waiting.answer.abort();
    assert!(waiting.answer.await.is_err_and(|error| error.is_cancelled()));

    enqueue_one(&*store, &queue).await;
    tokio::time::sleep(A_WHILE).await;
    // It may have been about to look: what it took then comes back, unspent.
    let claims = async {
        loop {
            let claims = claim(&*store, &queue, 10, LONG_LEASE).await;
            if !claims.is_empty() {
                return claims;
            }
            tokio::time::sleep(A_WHILE).await;
        }
    };
    let claims = tokio::time::timeout(LOST / 3, claims).await.expect("nobody holds it");
    let attempts: Vec<_> = claims.iter().map(|claim| claim.task.attempt_count).collect();
    assert_eq!(attempts, [0]);
}

pub(crate) async fn a_burst_is_shared_out_without_loss<F: Fixture>(fixture: F) {
    const TASKS: usize = 400;
    let (store, queue) = (fixture.open().await, some_queue());
    let mut workers = Vec::new();
    let enough = CancellationToken::new();
    for _ in 0..4 {
        let (store, queue, enough) = (Arc::clone(&store), queue.clone(), enough.clone());
        workers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            while !enough.is_cancelled() {
                let params = vec![claim_params(&queue, 7, LONG_LEASE)];
                let awaited = store.claim_when_due(params, enough.clone()).await;
                let claims = awaited.expect("claim_when_due").claims.remove(0).expect("a claim");
                for claim in claims.claims {
                    complete(&*store, &claim).await;
                    taken.push(claim.task.id);
                }
            }
            taken
        }));
    }
    for _ in 0..TASKS / 40 {
        enqueue_some(&*store, &queue, 20).await;
        for _ in 0..20 {
            enqueue_one(&*store, &queue).await;
        }
    }
    let all_done = async {
        while store.stats(queue.clone()).await.expect("stats").succeeded < TASKS as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LOST, all_done).await.expect("all of them get done");
    enough.cancel();
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.expect("a worker"));
    }
    assert_eq!(taken.len(), TASKS);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>().len(), TASKS, "each once");
}
