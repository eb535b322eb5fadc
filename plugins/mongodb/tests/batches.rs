//! What is alike is done by few commands, however many calls and tasks there are; who is not like the
//! others of a batch has an answer of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use futures::{TryStreamExt as _, future::join_all};
use mongodb::bson::{Document, doc};
use rdq_compliance::crew::{claim_from, new_task, queue, resolution};
use rdq_spi::{
    AttemptReport, Call, Claim, ClaimParams, ClaimQueue, Outcome, Resolution, StaleDetail,
    Storage as _, StorageError, TaskStatus, WorkerId,
};
use served::Served;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const CALLS: usize = 64;

fn success(claim: &Claim, forget: bool) -> Resolution {
    let attempt = AttemptReport { extra: "said".into(), ..AttemptReport::default() };
    let outcome = Outcome::Succeed { attempt, result: "result".into(), forget };
    Resolution { outcome, ..resolution(claim, Call::Complete) }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_come_at_once_share_their_commands() {
    let Some(served) = Served::start().await else { return };
    let (store, queue) = (served.open().await, queue("q"));
    let tasks = (0..CALLS).map(|n| new_task(&format!("t{n}"), &queue)).collect();
    store.enqueue(tasks).await.unwrap();
    let database = served.database().await;
    database.run_command(doc! { "profile": 2 }).await.unwrap();

    let claims = join_all((0..CALLS).map(|_| async {
        let from = ClaimQueue { queue: queue.clone(), lease: LONG, lease_max: LONG };
        let params = ClaimParams {
            queues: vec![from],
            limit: 1,
            bytes_max: 1 << 20,
            lease: None,
            worker_id: WorkerId::new("worker").unwrap(),
        };
        let claimed = store.claim_due(vec![params]).await.unwrap().remove(0).unwrap();
        claimed.claims.into_iter().next().unwrap()
    }));
    let claims = claims.await;

    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let mut ids: Vec<_> = claims.iter().map(|claim| claim.task.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), CALLS, "each has one of its own");
    let about = doc! { "ns": format!("{}.tasks", database.name()), "op": "update" };
    let profile = database.collection::<Document>("system.profile").find(about).await.unwrap();
    let updates: Vec<_> = profile.try_collect().await.unwrap();
    assert!(updates.len() <= CALLS / 4, "{} updates", updates.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_a_batch_that_hold_their_task_are_completed_and_the_others_are_told_why_not() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    for forget in [false, true] {
        let queue = queue(&format!("q-{forget}"));
        let tasks = (0..5).map(|n| new_task(&format!("{forget}-{n}"), &queue)).collect();
        store.enqueue(tasks).await.unwrap();
        let claims = claim_from(&store, &queue, LONG).await.unwrap();
        let [over, cancelled, given_back, first, second] = &claims[..] else {
            panic!("{claims:?}")
        };
        assert_eq!(over.generation, second.generation, "they are alike");
        store.resolve(vec![success(over, forget)]).await.unwrap().remove(0).unwrap();
        store.cancel(vec![cancelled.task.id.clone()]).await.unwrap().remove(0).unwrap();
        let back = resolution(given_back, Call::Release);
        store.resolve(vec![back]).await.unwrap().remove(0).unwrap();
        let again = claim_from(&store, &queue, LONG).await.unwrap().remove(0);
        assert_eq!(again.task.id, given_back.task.id);

        let batch = claims.iter().map(|claim| success(claim, forget)).collect();
        let answers = store.resolve(batch).await.unwrap();

        let [of_over, of_cancelled, of_given_back, of_first, of_second] = &answers[..] else {
            panic!("{answers:?}")
        };
        if forget {
            assert!(matches!(of_over, Err(StorageError::NotFound { .. })), "{of_over:?}");
        } else {
            assert!(of_over.as_ref().unwrap().replayed);
        }
        let detail = Some(StaleDetail::Cancelled);
        let is_stale = |answer: &Result<_, StorageError>, of: Option<StaleDetail>| {
            matches!(
            answer, Err(StorageError::StaleClaim { detail, .. }) if *detail == of)
        };
        assert!(is_stale(of_cancelled, detail), "{of_cancelled:?}");
        assert!(is_stale(of_given_back, None), "{of_given_back:?}");
        for answer in [of_first, of_second] {
            let answer = answer.as_ref().unwrap();
            assert_eq!((answer.status, answer.replayed), (TaskStatus::Succeeded, false));
        }
        let still = store.live_claims(vec![rdq_compliance::crew::claim_ref(&again)]).await.unwrap();
        assert!(still[0].is_some(), "the newer claim holds");
        for claim in [first, second] {
            let found = store.get(claim.task.id.clone()).await;
            if forget {
                assert!(matches!(found, Err(StorageError::NotFound { .. })), "{found:?}");
                continue;
            }
            let found = found.unwrap();
            assert_eq!((&*found.result, found.attempt_count), (&b"result"[..], 1));
            let attempt = &found.attempts[0];
            assert_eq!((&*attempt.extra, attempt.attempt_no), (&b"said"[..], 1));
            assert_eq!(attempt.started_at, claim.task.claimed_at);
            assert_eq!(attempt.finished_at, found.finished_at);
            assert_eq!(attempt.worker_id, claim.task.claimed_by);
        }
    }
}
