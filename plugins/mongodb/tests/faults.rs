//! What happens to a server, and what must not happen to tasks: it is killed, paused, cut off or
//! demoted, under load or in the middle of a call. The checker of histories judges what callers saw.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use futures::StreamExt as _;
use mongodb::bson::doc;
use rdq_compliance::{
    crew::{self, Crew, claim_from, new_task, queue, resolution},
    holders::Holders,
    tellers::Tellers,
};
use rdq_mongodb::OpenError;
use rdq_spi::{
    Call, ExtendParams, Moment, RedriveParams, Selection, Storage as _, StorageError, TaskStatus,
};
use rdq_test_servers::{LocalServer, Proxy};
use served::Served;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
/// What a command begins with that puts in tasks, and one that changes them.
const INSERTION: &[u8] = b"\x02insert\0\x06\0\0\0tasks\0";
const CHANGE: &[u8] = b"\x02update\0\x06\0\0\0tasks\0";
/// After each lost answer the driver looks at the server before it goes on.
const ROUNDS: usize = 5;

/// Repeats a call until the server serves again.
async fn until_served<T>(mut call: impl AsyncFnMut() -> Result<T, StorageError>) -> T {
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(StorageError::Unavailable { .. } | StorageError::OutcomeUnknown { .. }) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// Kills the server and starts it again, each time after some work.
async fn kill_again_and_again(served: &Served, work: impl AsyncFn()) {
    for _ in 0..4 {
        work().await;
        served.process(LocalServer::kill);
        tokio::time::sleep(Duration::from_millis(200)).await;
        served.process(LocalServer::start_again).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_again_and_again_loses_nothing() {
    let Some(served) = Served::start().await else { return };
    let crew = Crew::start(async || served.handle().await).await;
    kill_again_and_again(&served, async || crew.works_on().await).await;
    let tally = crew.finish(served.handle().await).await;
    assert!(tally.failed > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_a_lock_are_fenced_off_over_kills() {
    let Some(served) = Served::start().await else { return };
    let holders = Holders::start(async || served.handle().await).await;
    kill_again_and_again(&served, async || holders.works_on().await).await;
    let tally = holders.finish().await;
    assert!(tally.failed > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_keep_the_sum_over_kills() {
    let Some(served) = Served::start().await else { return };
    let tellers = Tellers::start(async || served.handle().await).await;
    kill_again_and_again(&served, async || tellers.works_on().await).await;
    let tally = tellers.finish(served.handle().await).await;
    assert!(tally.unavailable + tally.unknown > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_keep_the_sum_where_answers_to_commits_are_lost() {
    let Some(served) = Served::start().await else { return };
    let proxy = Proxy::before(served.address()).await.unwrap();
    let tellers = Tellers::start(async || served.handle_through(proxy.address()).await).await;
    for _ in 0..20 {
        proxy.lose_answer_to("commitTransaction");
        tellers.works_on().await;
    }
    let tally = tellers.finish(served.handle().await).await;
    assert_eq!(proxy.lost(), 20);
    // The driver asks again by itself, so that a teller need not hear of it.
    assert!(tally.acknowledged > 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_longer_than_the_leases_makes_no_second_claim() {
    let Some(served) = Served::start().await else { return };
    let crew = Crew::start(async || served.handle().await).await;
    for _ in 0..2 {
        crew.works_on().await;
        served.process(|server| server.pause());
        tokio::time::sleep(3 * crew::LEASE).await;
        served.process(|server| server.resume());
    }
    crew.finish(served.handle().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_under_load_are_made_again() {
    let Some(served) = Served::start().await else { return };
    let proxy = Proxy::before(served.address()).await.unwrap();
    let crew = Crew::start(async || served.handle_through(proxy.address()).await).await;
    for _ in 0..10 {
        crew.works_on().await;
        proxy.cut_all();
    }
    let tally = crew.finish(served.handle().await).await;
    assert!(tally.failed > 0, "the cuts were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_steps_down_under_load_loses_nothing() {
    let Some(served) = Served::start().await else { return };
    let crew = Crew::start(async || served.handle().await).await;
    for _ in 0..4 {
        crew.works_on().await;
        served.step_down().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        served.step_up().await;
    }
    let tally = crew.finish(served.handle().await).await;
    assert!(tally.failed > 0, "the steps down were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_stepped_down_refuses_and_serves_once_there_is_one_again() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    served.step_down().await;

    let error = store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");

    served.step_up().await;
    let task = new_task("t", &queue("q"));
    let admitted = until_served(async || store.enqueue(vec![task.clone()]).await).await;
    assert!(admitted[0].as_ref().is_ok_and(|it| it.created), "{admitted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_was_lost_says_so_and_is_safe_to_repeat() {
    let Some(served) = Served::start().await else { return };
    let proxy = Proxy::before(served.address()).await.unwrap();
    let store = served.open_through(proxy.address()).await;
    let unknown = |error: StorageError| {
        assert!(matches!(error, StorageError::OutcomeUnknown { .. }), "{error:?}");
    };
    for round in 0..ROUNDS {
        let queue = queue(&format!("q{round}"));
        let task = new_task(&format!("t{round}"), &queue);

        proxy.lose_answer_to(INSERTION);
        unknown(store.enqueue(vec![task.clone()]).await.unwrap_err());
        let again = store.enqueue(vec![task.clone()]).await.unwrap().remove(0).unwrap();
        assert!(!again.created, "the first call admitted it");

        proxy.lose_answer_to(CHANGE);
        unknown(claim_from(&store, &queue, Duration::from_millis(50)).await.unwrap_err());
        assert_eq!(store.get(task.id.clone()).await.unwrap().status, TaskStatus::InFlight);
        let claim = loop {
            let claimed = claim_from(&store, &queue, LONG).await.unwrap();
            match claimed.into_iter().next() {
                Some(claim) => break claim,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(claim.task.lease_expired_count, 1, "the claim that got lost lapsed");

        proxy.lose_answer_to(CHANGE);
        let lease = ExtendParams {
            claim: crew::claim_ref(&claim),
            lease: LONG,
            held_max: None,
            progress: Some("half".into()),
            strict: false,
        };
        unknown(store.extend_leases(vec![lease.clone()]).await.unwrap_err());
        store.extend_leases(vec![lease]).await.unwrap().remove(0).unwrap();

        proxy.lose_answer_to(CHANGE);
        let death = resolution(&claim, Call::DeadLetter);
        unknown(store.resolve(vec![death.clone()]).await.unwrap_err());
        let again = store.resolve(vec![death]).await.unwrap().remove(0).unwrap();
        assert!(again.replayed && again.status == TaskStatus::Dead);
        let dead = store.get(task.id.clone()).await.unwrap();
        assert_eq!((dead.attempts.len(), &*dead.progress), (2, &b"half"[..]), "each once");

        proxy.lose_answer_to(CHANGE);
        let redrive = RedriveParams {
            queue: queue.clone(),
            selection: Selection::All,
            dry_run: false,
            position: None,
            limit: 10,
            delay: Duration::ZERO,
            spacing: Duration::ZERO,
        };
        unknown(store.redrive(redrive.clone()).await.unwrap_err());
        assert_eq!(store.redrive(redrive).await.unwrap().count, 0, "the first call did it");

        proxy.lose_answer_to(CHANGE);
        unknown(store.cancel(vec![task.id.clone()]).await.unwrap_err());
        let again = store.cancel(vec![task.id.clone()]).await.unwrap().remove(0).unwrap();
        assert!(!again.changed && again.status == TaskStatus::Cancelled);
    }
    assert_eq!(proxy.lost(), ROUNDS * 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_unavailable_and_then_there_again() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    served.process(LocalServer::kill);

    // The first may find a connection that it does not know to be dead.
    let mut error = None;
    while !matches!(error, Some(StorageError::Unavailable { .. })) {
        let refused = store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap_err();
        let is_told = matches!(
            refused,
            StorageError::Unavailable { .. } | StorageError::OutcomeUnknown { .. }
        );
        assert!(is_told, "{refused:?}");
        error = Some(refused);
    }
    let error = served.try_open().await.unwrap_err();
    assert!(matches!(error, OpenError::Driver(_)), "{error:?}");

    served.process(LocalServer::start_again).unwrap();
    let task = new_task("t", &queue("q"));
    until_served(async || store.enqueue(vec![task.clone()]).await).await.remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_go_on_after_their_connection_was_cut() {
    let Some(served) = Served::start().await else { return };
    let proxy = Proxy::before(served.address()).await.unwrap();
    let (store, other) = (served.open_through(proxy.address()).await, served.open().await);
    let queue = queue("q");
    let mut hints = store.wait_due(vec![queue.clone()]).await.unwrap();
    for round in 0..5 {
        // Each task is admitted beside a listener that is cut off, before or after the admission.
        proxy.cut_all();
        other.enqueue(vec![new_task(&format!("t{round}"), &queue)]).await.unwrap();
        proxy.cut_all();
        while until_served(async || claim_from(&store, &queue, LONG).await).await.is_empty() {
            let hint = tokio::time::timeout(Duration::from_secs(20), hints.next()).await;
            assert!(hint.expect("a hint was lost").is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_goes_on_where_it_stood_when_the_hosts_was_set_back() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    store.enqueue(vec![new_task("before", &queue("q"))]).await.unwrap();
    let before = store.get(new_task("before", &queue("q")).id).await.unwrap().created_at;
    // As if the host's clock had been an hour ahead then.
    let numbers = served.database().await.collection::<mongodb::bson::Document>("store");
    let ahead = vec![doc! { "$set": { "now": { "$add": ["$now", 3_600_000] } } }];
    numbers.update_one(doc! { "_id": "numbers" }, ahead).await.unwrap();

    let store = served.open().await;
    store.enqueue(vec![new_task("after", &queue("q"))]).await.unwrap();
    let after = store.get(new_task("after", &queue("q")).id).await.unwrap().created_at;

    assert!(after.since(before) >= Duration::from_secs(3_600), "{before:?} {after:?}");
    let claims = claim_from(&store, &queue("q"), LONG).await.unwrap();
    assert_eq!(claims.len(), 2, "what was due stays due");
    for claim in claims {
        let done = store.resolve(vec![resolution(&claim, Call::Complete)]).await.unwrap();
        assert!(done[0].is_ok(), "{done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_is_done_or_not_and_its_connection_is_good() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    let queue = queue("q");
    for round in 0..200_u64 {
        let call = store.enqueue(vec![new_task(&format!("t{round}"), &queue)]);
        drop(tokio::time::timeout(Duration::from_micros(round * 20), call).await);
    }
    for round in 0..200 {
        let again = store.enqueue(vec![new_task(&format!("t{round}"), &queue)]).await.unwrap();
        assert!(again[0].is_ok(), "{again:?}");
    }
    assert_eq!(store.stats(queue).await.unwrap().ready, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_falls_due_in_one_second_is_taken_once_by_many() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    let queue = queue("q");
    for batch in 0..10 {
        let tasks = (0..50).map(|n| {
            let due = Moment::In(Duration::from_millis(300));
            rdq_spi::NewTask { due, ..new_task(&format!("t{batch}-{n}"), &queue) }
        });
        store.enqueue(tasks.collect()).await.unwrap();
    }

    let mut claimants = Vec::new();
    for _ in 0..8 {
        let (store, queue) = (served.open().await, queue.clone());
        claimants.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let claims = claim_from(&store, &queue, LONG).await.unwrap();
                if claims.is_empty() {
                    let stats = store.stats(queue.clone()).await.unwrap();
                    if stats.ready + stats.delayed == 0 {
                        return taken;
                    }
                }
                taken.extend(claims.into_iter().map(|claim| claim.task.id));
            }
        }));
    }
    let mut taken = Vec::new();
    for claimant in claimants {
        taken.extend(claimant.await.unwrap());
    }

    assert_eq!(taken.len(), 500);
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 500, "each once");
}
