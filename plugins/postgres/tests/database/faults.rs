//! Faults of the database and of the way to it: what was acknowledged stands, what is unknown is said
//! to be, and service resumes by itself.

use crate::{
    given::{LONG, admit, claim, completion, id, is_ignored, open, queue, task, until_it_works},
    schema::Schema,
};
use futures::StreamExt as _;
use rdq_compliance::{holders::Holders, tellers::Tellers};
use rdq_spi::{Storage, StorageError, TaskStatus};
use rdq_test_servers::{
    Proxy,
    postgres::{self, PostgresServer},
};
use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

async fn handle(url: &str) -> Arc<dyn Storage> {
    Arc::new(open(url).await)
}

async fn own_server() -> PostgresServer {
    PostgresServer::start().await.unwrap()
}

async fn proxy_before(server: &mut PostgresServer) -> Proxy {
    let port = server.local().unwrap().port();
    Proxy::before(format!("127.0.0.1:{port}")).await.unwrap()
}

fn url_of(proxy: &Proxy) -> String {
    format!("postgres://postgres@{}/postgres", proxy.address())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_under_load_loses_nothing_acknowledged() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let schema = Schema::new(&server);
    let storage = Arc::new(open(&schema.url()).await);
    let ends = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = (0..4)
        .map(|producer| {
            let (storage, ends) = (Arc::clone(&storage), Arc::clone(&ends));
            tokio::spawn(async move {
                let (mut acknowledged, mut failed) = (Vec::new(), 0);
                for n in 0.. {
                    if ends.load(Ordering::SeqCst) {
                        break;
                    }
                    let name = format!("p{producer}-{n}");
                    match storage.enqueue(vec![task(&name, "q")]).await {
                        Ok(_) => acknowledged.push(id(name)),
                        Err(_) => failed += 1,
                    }
                }
                (acknowledged, failed)
            })
        })
        .collect();

    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let local = server.local().unwrap();
        local.kill();
        local.start_again().unwrap();
        until_it_works(async || storage.ping().await).await;
    }
    ends.store(true, Ordering::SeqCst);

    let (mut acknowledged, mut failures) = (HashSet::new(), 0);
    for producer in producers {
        let (of_one, failed) = producer.await.unwrap();
        acknowledged.extend(of_one);
        failures += failed;
    }
    assert!(failures > 0, "the fault was felt");
    let mut claimed = HashSet::new();
    loop {
        let claims = claim(&*storage, "q", 1_000, LONG).await;
        if claims.is_empty() {
            break;
        }
        for it in claims {
            assert!(claimed.insert(it.task.id), "no task is handed out twice");
        }
    }
    let lost: Vec<_> = acknowledged.difference(&claimed).collect();
    assert_eq!(lost, Vec::<&rdq_spi::TaskId>::new());
}

/// Kills the server and starts it again, each time after some work.
async fn kill_again_and_again(server: &mut PostgresServer, work: impl AsyncFn()) {
    for _ in 0..3 {
        work().await;
        let local = server.local().unwrap();
        local.kill();
        local.start_again().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_a_lock_are_fenced_off_over_kills() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let schema = Schema::new(&server);
    let holders = Holders::start(async || handle(&schema.url()).await).await;
    kill_again_and_again(&mut server, async || holders.works_on().await).await;
    let tally = holders.finish().await;
    assert!(tally.failed > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_keep_the_sum_over_kills() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let schema = Schema::new(&server);
    let tellers = Tellers::start(async || handle(&schema.url()).await).await;
    kill_again_and_again(&mut server, async || tellers.works_on().await).await;
    let tally = tellers.finish(handle(&schema.url()).await).await;
    assert!(tally.unavailable + tally.unknown > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_keep_the_sum_where_answers_to_commits_are_lost() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let proxy = proxy_before(&mut server).await;
    let schema = Schema::new(&server);
    let url = schema.url_through(&url_of(&proxy));
    let tellers = Tellers::start(async || handle(&url).await).await;
    for _ in 0..20 {
        proxy.lose_answer_to("COMMIT");
        tellers.works_on().await;
    }
    let tally = tellers.finish(handle(&schema.url()).await).await;
    assert_eq!(proxy.lost(), 20);
    assert!(tally.unknown > 0, "the losses were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_said_to_be_unknown_and_can_be_repeated() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let proxy = proxy_before(&mut server).await;
    let schema = Schema::new(&server);
    let storage = open(&schema.url_through(&url_of(&proxy))).await;
    let is_unknown = |error: &StorageError| matches!(error, StorageError::OutcomeUnknown { .. });
    for n in 0..20 {
        let name = format!("answer-lost-{n}.");
        proxy.lose_answer_to(&*name);
        let unknown = storage.enqueue(vec![task(&name, "q")]).await.unwrap_err();
        assert!(is_unknown(&unknown), "{unknown:?}");
        let again = storage.enqueue(vec![task(&name, "q")]).await.unwrap().remove(0).unwrap();
        assert!(!again.created, "the first call admitted it");

        let claimed = claim(&storage, "q", 1, LONG).await.remove(0);
        proxy.lose_answer_to(&*name);
        let unknown = storage.resolve(vec![completion(&claimed)]).await.unwrap_err();
        assert!(is_unknown(&unknown), "{unknown:?}");
        let again = storage.resolve(vec![completion(&claimed)]).await.unwrap().remove(0).unwrap();
        assert!(again.replayed && again.status == TaskStatus::Succeeded, "{again:?}");
        assert_eq!(storage.get(id(name)).await.unwrap().attempts.len(), 1, "one effect");
    }
    assert_eq!(proxy.lost(), 20 * 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_are_made_again_and_no_hint_is_lost() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let proxy = proxy_before(&mut server).await;
    let schema = Schema::new(&server);
    let storage = open(&schema.url_through(&url_of(&proxy))).await;
    let other = open(&schema.url()).await;
    let mut hints = storage.wait_due(vec![queue("q")]).await.unwrap();
    for n in 0..5 {
        proxy.cut_all();
        admit(&other, vec![task(format!("t{n}"), "q")]).await;
        let hint = tokio::time::timeout(Duration::from_secs(30), hints.next()).await;
        assert!(hint.is_ok_and(|hint| hint.is_some()), "a hint was lost");
        let claims = until_it_works(async || {
            Ok(storage
                .claim_due(vec![crate::given::claim_params("q", 1, LONG)])
                .await?
                .remove(0)?
                .claims)
        });
        for claimed in claims.await {
            until_it_works(async || storage.resolve(vec![completion(&claimed)]).await).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_pauses_longer_than_a_lease_hands_the_task_out_once_more() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = own_server().await;
    let schema = Schema::new(&server);
    let storage = Arc::new(open(&schema.url()).await);
    admit(&*storage, vec![task("t", "q")]).await;
    let lease = Duration::from_millis(300);
    let first = claim(&*storage, "q", 1, lease).await.remove(0);
    server.local().unwrap().pause();

    let waiting = {
        let storage = Arc::clone(&storage);
        tokio::spawn(async move { claim(&*storage, "q", 1, LONG).await })
    };
    tokio::time::sleep(lease * 3).await;
    assert!(!waiting.is_finished(), "the database pauses");
    server.local().unwrap().resume();

    let second = waiting.await.unwrap().remove(0);
    assert!(second.generation > first.generation);
    assert_eq!(second.task.lease_expired_count, 1);
    let stale = storage.resolve(vec![completion(&first)]).await.unwrap().remove(0);
    assert!(matches!(stale, Err(StorageError::StaleClaim { .. })), "{stale:?}");
    assert!(storage.resolve(vec![completion(&second)]).await.unwrap().remove(0).is_ok());
}
