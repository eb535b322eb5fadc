//! What happens to a server, and what must not happen to tasks: it is killed, paused, cut off, full,
//! demoted or emptied of its functions, under load or in the middle of a call. The checker of
//! histories judges what callers saw.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod servers;

use futures::StreamExt as _;
use rdq_compliance::{
    crew::{self, Crew, claim_from, new_task, queue, resolution},
    holders::Holders,
    tellers::Tellers,
};
use rdq_redis::{OpenError, RedisConfig, RedisStorage};
use rdq_spi::{
    Call, CompareAndSet, Durability, ExtendParams, LockName, Locks as _, Moment, MutationKey,
    MutationKind, MutationScope, MutationStatus, NewEvent, NewMutation, Operation, OperationName,
    OwnerName, PurgeParams, RecordKey, RecordName, RecordSpace, Records as _, RedriveParams,
    Selection, Storage, StorageError, StreamName, Streams as _, SubjectName, TaskStatus,
    Transactions as _, TryLock,
};
use rdq_test_servers::{LocalServer, Proxy, redis::Flavor};
use servers::Served;
use std::{sync::Arc, time::Duration};

/// The server under test, unless it is not installed and need not be.
async fn start(settings: &[&str]) -> Option<Served> {
    if let Some(reason) = Flavor::Redis.missing_locally() {
        eprintln!("ignored: {reason}");
        return None;
    }
    Some(Served::start_with(Flavor::Redis, settings).await)
}

fn command(words: &str) -> redis::Cmd {
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    command.arg(words.collect::<Vec<_>>());
    command
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
    let Some(served) = start(&[]).await else { return };
    let crew = Crew::start(async || served.handle().await).await;
    kill_again_and_again(&served, async || crew.works_on().await).await;
    let tally = crew.finish(served.handle().await).await;
    assert!(tally.failed > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_of_a_lock_are_fenced_off_over_kills() {
    let Some(served) = start(&[]).await else { return };
    let holders = Holders::start(async || served.handle().await).await;
    kill_again_and_again(&served, async || holders.works_on().await).await;
    let tally = holders.finish().await;
    assert!(tally.failed > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_keep_the_sum_over_kills() {
    let Some(served) = start(&[]).await else { return };
    let tellers = Tellers::start(async || served.handle().await).await;
    kill_again_and_again(&served, async || tellers.works_on().await).await;
    let tally = tellers.finish(served.handle().await).await;
    assert!(tally.unavailable + tally.unknown > 0, "the kills were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn transfers_keep_the_sum_where_answers_to_commits_are_lost() {
    let Some(served) = start(&[]).await else { return };
    let address = served.address();
    let proxy = Proxy::before(address.trim_start_matches("redis://")).await.unwrap();
    let url = served.url_through(&format!("redis://{}", proxy.address()));
    let open = async || {
        let config = RedisConfig::from_url(&url).unwrap();
        let store: Arc<dyn Storage> = Arc::new(RedisStorage::connect(config).await.unwrap());
        store
    };
    let tellers = Tellers::start(open).await;
    for _ in 0..20 {
        proxy.lose_answer_to("_commit\r\n");
        tellers.works_on().await;
    }
    let tally = tellers.finish(served.handle().await).await;
    assert_eq!(proxy.lost(), 20);
    assert!(tally.unknown > 0, "the losses were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_longer_than_the_leases_makes_no_second_claim() {
    let Some(served) = start(&[]).await else { return };
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
    let Some(served) = start(&[]).await else { return };
    let crew = Crew::start(async || served.handle().await).await;
    for _ in 0..10 {
        crew.works_on().await;
        served.ask(&command("CLIENT KILL TYPE normal SKIPME yes"));
    }
    let tally = crew.finish(served.handle().await).await;
    assert!(tally.failed > 0, "the cuts were not noticed: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_are_gone_are_loaded_again_in_the_middle_of_the_work() {
    let Some(served) = start(&[]).await else { return };
    let crew = Crew::start(async || served.handle().await).await;
    for _ in 0..10 {
        crew.works_on().await;
        served.ask(&command("FUNCTION FLUSH"));
    }
    let tally = crew.finish(served.handle().await).await;
    assert_eq!(tally.failed, 0, "nobody notices: {tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_was_lost_says_so_and_is_safe_to_repeat() {
    let Some(served) = start(&[]).await else { return };
    let address = served.address();
    let proxy = Proxy::before(address.trim_start_matches("redis://")).await.unwrap();
    let url = served.url_through(&format!("redis://{}", proxy.address()));
    let lose_answer_of = |function: &str| proxy.lose_answer_to(format!("_{function}\r\n"));
    let store = RedisStorage::connect(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let unknown = |error: StorageError| {
        assert!(matches!(error, StorageError::OutcomeUnknown { .. }), "{error:?}");
    };
    for round in 0..20 {
        let queue = queue(&format!("q{round}"));
        let task = new_task(&format!("t{round}"), &queue);

        lose_answer_of("enqueue");
        unknown(store.enqueue(vec![task.clone()]).await.unwrap_err());
        let again = store.enqueue(vec![task.clone()]).await.unwrap().remove(0).unwrap();
        assert!(!again.created, "the first call admitted it");

        lose_answer_of("claim_due");
        unknown(claim_from(&store, &queue, Duration::from_millis(50)).await.unwrap_err());
        assert_eq!(store.get(task.id.clone()).await.unwrap().status, TaskStatus::InFlight);
        let claim = loop {
            let claimed = claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap();
            match claimed.into_iter().next() {
                Some(claim) => break claim,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(claim.task.lease_expired_count, 1, "the claim that got lost lapsed");

        lose_answer_of("extend_leases");
        let lease = ExtendParams {
            claim: crew::claim_ref(&claim),
            lease: Duration::from_secs(60),
            held_max: None,
            progress: Some("half".into()),
            strict: false,
        };
        unknown(store.extend_leases(vec![lease.clone()]).await.unwrap_err());
        store.extend_leases(vec![lease]).await.unwrap().remove(0).unwrap();

        lose_answer_of("resolve");
        let death = resolution(&claim, Call::DeadLetter);
        unknown(store.resolve(vec![death.clone()]).await.unwrap_err());
        let again = store.resolve(vec![death]).await.unwrap().remove(0).unwrap();
        assert!(again.replayed && again.status == TaskStatus::Dead);
        let dead = store.get(task.id.clone()).await.unwrap();
        assert_eq!((dead.attempts.len(), &*dead.progress), (2, &b"half"[..]), "each once");

        lose_answer_of("redrive");
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

        lose_answer_of("cancel");
        unknown(store.cancel(vec![task.id.clone()]).await.unwrap_err());
        let again = store.cancel(vec![task.id.clone()]).await.unwrap().remove(0).unwrap();
        assert!(!again.changed && again.status == TaskStatus::Cancelled);

        lose_answer_of("get");
        let read = store.get(task.id.clone()).await.unwrap_err();
        assert!(matches!(read, StorageError::Unavailable { .. }), "a read changes nothing");
    }
    assert_eq!(proxy.lost(), 20 * 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_unavailable_and_then_there_again() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    served.process(LocalServer::kill);

    // It may be sent on a connection that answered a moment ago; that one is not used again.
    let error = store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap_err();
    let is_away = |error: &_| matches!(error, StorageError::Unavailable { .. });
    assert!(is_away(&error) || matches!(error, StorageError::OutcomeUnknown { .. }), "{error:?}");
    let error = store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap_err();
    assert!(is_away(&error), "nothing was sent: {error:?}");
    let error = served.try_open().await.unwrap_err();
    assert!(matches!(error, OpenError::Server(_)), "{error:?}");

    served.process(LocalServer::start_again).unwrap();
    store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_go_on_after_their_connection_was_cut() {
    let Some(served) = start(&[]).await else { return };
    let (store, other) = (served.open().await, served.open().await);
    let queue = queue("q");
    let mut hints = store.wait_due(vec![queue.clone()]).await.unwrap();
    for round in 0..5 {
        // Each task is admitted beside a listener that is cut off, before or after the admission.
        served.ask(&command("CLIENT KILL TYPE pubsub"));
        other.enqueue(vec![new_task(&format!("t{round}"), &queue)]).await.unwrap();
        served.ask(&command("CLIENT KILL TYPE pubsub"));
        while claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap().is_empty() {
            let hint = tokio::time::timeout(Duration::from_secs(20), hints.next()).await;
            assert!(hint.expect("a hint was lost").is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_takes_nothing_new_and_lets_work_be_done() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    let queue = queue("q");
    store.enqueue(vec![new_task("before", &queue)]).await.unwrap();
    served.ask(&command("CONFIG SET maxmemory 1"));

    let error = store.enqueue(vec![new_task("refused", &queue)]).await.unwrap_err();
    assert!(matches!(error, StorageError::Full { .. }), "{error:?}");
    let claims = claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claims[0].task.id.as_str(), "before");
    let done = store.resolve(vec![resolution(&claims[0], Call::Complete)]).await.unwrap();
    assert!(done[0].as_ref().is_ok_and(|it| it.status == TaskStatus::Succeeded), "{done:?}");
    assert_eq!(store.stats(queue.clone()).await.unwrap().succeeded, 1);

    served.ask(&command("CONFIG SET maxmemory 0"));
    store.enqueue(vec![new_task("refused", &queue)]).await.unwrap().remove(0).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_demoted_refuses_and_is_left_alone() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    // Of a primary that is not there.
    served.ask(&command("REPLICAOF 127.0.0.1 1"));

    let error = store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
    assert!(matches!(served.try_open().await.unwrap_err(), OpenError::Replica));

    served.ask(&command("REPLICAOF NO ONE"));
    store.enqueue(vec![new_task("t", &queue("q"))]).await.unwrap().remove(0).unwrap();
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_and_its_setting_named() {
    let Some(served) = start(&["--maxmemory-policy", "volatile-lru"]).await else { return };
    let error = served.try_open().await.unwrap_err();
    assert!(matches!(error, OpenError::Evicts(_)), "{error:?}");
    assert!(error.to_string().contains("maxmemory-policy noeviction"), "{error}");
}

#[tokio::test]
async fn what_is_promised_is_what_the_server_is_configured_for() {
    for (settings, expected) in [
        (["--appendonly", "no"], Durability::None),
        (["--appendfsync", "everysec"], Durability::Process),
        (["--appendfsync", "always"], Durability::PowerCut),
    ] {
        let Some(served) = start(&settings).await else { return };
        assert_eq!(served.open().await.capabilities().durability, expected, "{settings:?}");
    }
}

#[tokio::test]
async fn data_of_a_newer_layout_is_refused_and_left_alone() {
    let Some(served) = start(&[]).await else { return };
    served.open().await.ping().await.unwrap();
    let state = served.key("state");
    served.ask(redis::cmd("SETRANGE").arg(&state).arg(0).arg(&b"\x63"[..]));

    let error = served.try_open().await.unwrap_err();

    assert!(matches!(error, OpenError::NewerSchema { found: 0x63, known: 2 }), "{error:?}");
}

#[tokio::test]
async fn data_of_an_older_layout_is_refused_with_what_to_do_and_left_alone() {
    let Some(served) = start(&[]).await else { return };
    served.open().await.ping().await.unwrap();
    let state = served.key("state");
    served.ask(redis::cmd("SETRANGE").arg(&state).arg(0).arg(&b"\x01"[..]));

    let error = served.try_open().await.unwrap_err();

    assert!(matches!(error, OpenError::OlderSchema { found: 1, known: 2, .. }), "{error:?}");
    assert!(error.to_string().contains(&state.replace("state", "*")), "{error}");
    assert_eq!(served.ask(redis::cmd("GETRANGE").arg(&state).arg(0).arg(0)), "\x01");
}

#[tokio::test]
async fn nothing_has_an_end_of_its_own_and_all_of_it_is_in_one_slot() {
    let Some(served) = start(&[]).await else { return };
    let store = Arc::new(served.open().await);
    let queue = queue("{a}b}c{");
    let tasks = (0..5).map(|n| new_task(&format!("t{n}"), &queue)).collect();
    store.enqueue(tasks).await.unwrap();
    let claims = claim_from(&*store, &queue, Duration::from_secs(60)).await.unwrap();
    let ends = [Call::Complete, Call::DeadLetter, Call::Reschedule];
    let ends = claims.iter().zip(ends).map(|(claim, call)| resolution(claim, call)).collect();
    store.resolve(ends).await.unwrap();
    store.put_queue(queue, rdq_spi::QueueConfig::default()).await.unwrap();
    store.shared_secret("name", vec![1]).await.unwrap();
    let stream = StreamName::new("{s}").unwrap();
    let event = NewEvent { stream, key: None, payload: "event".into() };
    store.publish(vec![event]).await.unwrap();
    let key = RecordKey { space: RecordSpace::Caller, name: RecordName::new("{r}").unwrap() };
    let record = CompareAndSet { key, value: Some("value".into()), expected_revision: 0 };
    store.compare_and_set(vec![record]).await.unwrap();
    let (name, owner) = (LockName::new("{l}").unwrap(), OwnerName::new("me").unwrap());
    store.try_lock(TryLock { name, owner, ttl: Duration::from_secs(60) }).await.unwrap();
    let mutation = NewMutation {
        scope: MutationScope {
            subject: SubjectName::new("{s}").unwrap(),
            operation: OperationName::new("{o}").unwrap(),
            key: MutationKey::new("{k}").unwrap(),
        },
        kind: MutationKind::new("kind").unwrap(),
        eligibility_claim: "claim".into(),
        fingerprint: [1; 32],
        status: MutationStatus::Accepted,
        response: "done".into(),
    };
    store.commit(vec![Operation::Observe(mutation)]).await.unwrap();

    let keys = served.keys();

    assert_eq!(keys.len(), 17, "{keys:?}");
    let slot = |key: &String| served.ask(redis::cmd("CLUSTER").arg("KEYSLOT").arg(key));
    for key in &keys {
        assert!(key.starts_with("rdq:{test-"), "{key}");
        assert_eq!(served.ask(redis::cmd("TTL").arg(key)), "-1", "{key}");
        if served.ask(&command("INFO cluster")).contains("cluster_enabled:1") {
            assert_eq!(slot(key), slot(&keys[0]), "{key}");
        }
    }
}

#[tokio::test]
async fn the_clock_goes_on_where_it_stood_when_the_hosts_was_set_back() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    store.enqueue(vec![new_task("before", &queue("q"))]).await.unwrap();
    // As if the host's clock had been an hour ahead then.
    let ahead = served.move_clock(3_600_000);

    let created = async |id: &str| {
        store.enqueue(vec![new_task(id, &queue("q"))]).await.unwrap().remove(0).unwrap();
        let task = store.get(new_task(id, &queue("q")).id).await.unwrap();
        task.created_at.millis()
    };
    let first = created("after").await;
    assert!((ahead..ahead + 60_000).contains(&first), "{first} {ahead}");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(created("later").await > first, "it goes on, if slower");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_is_done_or_not_and_its_connection_is_good() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    let queue = queue("q");
    for round in 0..200_u64 {
        let call = store.enqueue(vec![new_task(&format!("t{round}"), &queue)]);
        drop(tokio::time::timeout(Duration::from_micros(round * 5), call).await);
    }
    let stats = store.stats(queue.clone()).await.unwrap();
    let mut admitted = 0;
    for round in 0..200 {
        let again = store.enqueue(vec![new_task(&format!("t{round}"), &queue)]).await.unwrap();
        admitted += u64::from(!again[0].as_ref().unwrap().created);
    }
    assert!(admitted >= stats.ready, "{admitted} of {stats:?}");
    assert_eq!(store.stats(queue).await.unwrap().ready, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_falls_due_in_one_second_is_taken_once_by_many() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    let queue = queue("q");
    for batch in 0..10 {
        let tasks = (0..500).map(|n| {
            let due = Moment::In(Duration::from_millis(300));
            rdq_spi::NewTask { due, ..new_task(&format!("t{batch}-{n}"), &queue) }
        });
        store.enqueue(tasks.collect()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(400)).await;

    let mut claimants = Vec::new();
    for _ in 0..8 {
        let (store, queue) = (served.open().await, queue.clone());
        claimants.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let claims = claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap();
                if claims.is_empty() {
                    return taken;
                }
                taken.extend(claims.into_iter().map(|claim| claim.task.id));
            }
        }));
    }
    let mut taken = Vec::new();
    for claimant in claimants {
        taken.extend(claimant.await.unwrap());
    }

    assert_eq!(taken.len(), 5_000);
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 5_000, "each once");
}

#[tokio::test]
async fn a_purge_of_long_histories_goes_in_small_steps_and_leaves_nothing_behind() {
    let Some(served) = start(&[]).await else { return };
    let store = served.open().await;
    let queue = queue("q");
    let record = |attempt_no| rdq_spi::Attempt {
        attempt_no,
        started_at: None,
        finished_at: None,
        outcome: None,
        worker_id: None,
        error: None,
        extra: bytes::Bytes::new(),
        folded_count: 0,
    };
    for n in 0..3 {
        let mut task = new_task(&format!("t{n}"), &queue);
        task.attempts = (1..=rdq_spi::HISTORY_RECORDS_MAX).map(record).collect();
        store.enqueue(vec![task]).await.unwrap().remove(0).unwrap();
    }
    let claims = claim_from(&store, &queue, Duration::from_secs(60)).await.unwrap();
    let deaths = claims.iter().map(|claim| resolution(claim, Call::DeadLetter)).collect();
    store.resolve(deaths).await.unwrap();

    let (mut counts, mut position) = (Vec::new(), None);
    loop {
        let params = PurgeParams {
            queue: queue.clone(),
            selection: Selection::All,
            dry_run: false,
            position,
            limit: 10,
        };
        let step = store.purge(params).await.unwrap();
        counts.push(step.count);
        position = step.next;
        if position.is_none() {
            break;
        }
    }

    assert_eq!(counts, [1, 1, 1], "one call removes so many records, and at least one task");
    assert_eq!(served.keys(), [served.key("state")], "the numbers that only grow stay");
}
