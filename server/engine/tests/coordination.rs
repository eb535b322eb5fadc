//! What the engine adds to the storage's faculties: shared calls and listeners, subscriptions, and
//! the limits of transactions.
#![allow(clippy::disallowed_methods, reason = "measures how long a story took, on paused time")]
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

mod support;

use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use rdq_engine::{
    ClaimMessagesRequest, Engine, EngineError, EngineOptions, Heard, NewMessage, OutboxName,
    SubscribeRequest, TransactionLimits, TransactionOperation,
};
use rdq_memory::MemoryStorage;
use rdq_spi::{
    ChannelName, ConsumerName, HeldClaim, NewEvent, QueueConfig, ReadFrom, Retention, Signals,
    Storage as _, StorageError, StreamName, Streams as _, TaskStatus, Topic,
};
use std::{sync::Arc, sync::atomic::Ordering, time::Duration};
use support::{id, queue, scene, scenes, secs, settle, worker};

fn stream(name: &str) -> StreamName {
    StreamName::new(name).unwrap()
}

fn event(name: &str, payload: &'static str) -> NewEvent {
    NewEvent { stream: stream(name), key: None, payload: Bytes::from_static(payload.as_bytes()) }
}

fn subscription(name: &str) -> SubscribeRequest {
    let consumer = ConsumerName::new("reader").unwrap();
    SubscribeRequest { stream: stream(name), consumer, limit: 10 }
}

fn outbox(name: &str) -> OutboxName {
    OutboxName::new(queue(name))
}

fn message(name: &str, outbox: OutboxName) -> NewMessage {
    NewMessage {
        outbox,
        id: id(name),
        envelope: Bytes::from_static(b"message"),
        payload_bytes: 7,
        delay: Duration::ZERO,
    }
}

async fn claim_message(engine: &Engine, from: &OutboxName) -> HeldClaim {
    let request = ClaimMessagesRequest {
        outbox: Some(from.clone()),
        limit: 1,
        lease: None,
        worker_id: worker("relay"),
    };
    let claimed = engine.claim_messages(request).await.unwrap().remove(0);
    let (task_id, generation) = (claimed.task.id, claimed.generation);
    HeldClaim { task_id, worker_id: worker("relay"), generation }
}

fn is_contention(error: &EngineError) -> bool {
    matches!(error, EngineError::Storage(it) if matches!(**it, StorageError::Contention { .. }))
}

#[tokio::test(start_paused = true)]
async fn concurrent_publications_share_storage_calls_and_each_has_its_own_offset() {
    let scene = scene(false, EngineOptions::default()).await;
    let publications: Vec<_> = (0..200)
        .map(|_| {
            let engine = scene.engine.clone();
            tokio::spawn(async move { engine.publish(event("s", "x")).await.unwrap() })
        })
        .collect();
    let mut offsets = Vec::new();
    for publication in publications {
        offsets.push(publication.await.unwrap());
    }
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), 200);
    let calls = scene.shell.publish_calls.load(Ordering::SeqCst);
    assert!(calls < 100, "{calls} calls");
}

#[tokio::test(start_paused = true)]
async fn a_jammed_stream_holds_up_its_own_publishers_alone() {
    let scene = scene(false, EngineOptions::default()).await;
    *scene.shell.jammed.lock().unwrap() = Some(stream("jammed"));
    let started = tokio::time::Instant::now();
    let jammed: Vec<_> = (0..3)
        .map(|_| {
            let engine = scene.engine.clone();
            tokio::spawn(async move { engine.publish(event("jammed", "x")).await })
        })
        .collect();
    settle().await;
    for _ in 0..20 {
        scene.engine.publish(event("free", "x")).await.unwrap();
    }
    assert!(started.elapsed() < secs(1), "{:?}", started.elapsed());
    for publication in jammed {
        assert!(is_contention(&publication.await.unwrap().unwrap_err()));
    }
    *scene.shell.jammed.lock().unwrap() = None;
    scene.engine.publish(event("jammed", "x")).await.unwrap();
    assert_eq!(scene.engine.publish(event("free", "x")).await.unwrap(), 21);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_hears_of_events_with_signals_and_without() {
    for scene in scenes().await {
        scene.engine.publish(event("s", "one")).await.unwrap();
        let mut events = scene.engine.subscribe(subscription("s")).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap()[0].payload, "one");
        assert!(events.next().now_or_never().is_none(), "nothing more is there");
        let other = scene.another().await;
        other.publish(event("s", "two")).await.unwrap();
        let next = events.next().await.unwrap().unwrap();
        assert_eq!(next[0].payload, "two", "masked: {}", scene.masked);

        // A quiet one says so now and then.
        let quiet_from = tokio::time::Instant::now();
        assert_eq!(events.next().await.unwrap().unwrap(), []);
        assert_eq!(quiet_from.elapsed().as_secs(), 15);
        scene.engine.end_streams();
        assert!(matches!(events.next().await, Some(Err(EngineError::Closed))));
        assert!(events.next().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_begins_with_an_item_and_reads_no_further_than_it_is_read() {
    let scene = scene(false, EngineOptions::default()).await;
    let mut empty = scene.engine.subscribe(subscription("empty")).await.unwrap();
    assert_eq!(empty.next().await.unwrap().unwrap(), []);
    for _ in 0..25 {
        scene.engine.publish(event("s", "x")).await.unwrap();
    }
    let mut events = scene.engine.subscribe(subscription("s")).await.unwrap();
    let mut offsets = Vec::new();
    for expected in [10, 10, 5] {
        let item = events.next().await.unwrap().unwrap();
        assert_eq!(item.len(), expected);
        offsets.extend(item.iter().map(|event| event.offset));
    }
    assert_eq!(offsets, (1..=25).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn listeners_of_one_channel_share_one_of_the_storage_and_the_last_ends_it() {
    let memory = MemoryStorage::new();
    let engine = Engine::start(Arc::new(memory.clone()), EngineOptions::default()).await.unwrap();
    let channel = ChannelName::new("c").unwrap();
    let mut hearings = Vec::new();
    for _ in 0..3 {
        let mut hearing = engine.listen(channel.clone()).await.unwrap();
        assert_eq!(hearing.next().await.unwrap().unwrap(), Heard::Silence);
        hearings.push(hearing);
    }
    engine.notify(channel.clone(), 1 << 20).await.unwrap();
    for hearing in &mut hearings {
        assert_eq!(hearing.next().await.unwrap().unwrap(), Heard::News);
        assert!(hearing.next().now_or_never().is_none());
    }
    // Of another handle, and again after everybody left.
    hearings.truncate(1);
    memory.signals().unwrap().notify(vec![channel.clone()]).await.unwrap();
    assert_eq!(hearings[0].next().await.unwrap().unwrap(), Heard::News);
    hearings.clear();
    settle().await;
    let mut again = engine.listen(channel.clone()).await.unwrap();
    assert_eq!(again.next().await.unwrap().unwrap(), Heard::Silence);
    engine.notify(channel, 0).await.unwrap();
    assert_eq!(again.next().await.unwrap().unwrap(), Heard::News);
    let quiet_from = tokio::time::Instant::now();
    assert_eq!(again.next().await.unwrap().unwrap(), Heard::Silence);
    assert_eq!(quiet_from.elapsed().as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn a_listener_whose_source_dies_is_told_and_the_next_one_is_well() {
    let memory = Arc::new(MemoryStorage::new());
    let engine = Engine::start(memory.clone(), EngineOptions::default()).await.unwrap();
    let channel = ChannelName::new("c").unwrap();
    let mut hearing = engine.listen(channel.clone()).await.unwrap();
    hearing.next().await;
    memory.close().await;
    let error = hearing.next().await.unwrap().unwrap_err();
    assert!(
        matches!(&error, EngineError::Storage(it) if matches!(**it, StorageError::Unavailable { .. })),
        "{error:?}"
    );
    assert!(hearing.next().await.is_none());
    assert!(engine.listen(channel).await.is_err(), "it listens anew, and the storage is closed");
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_is_asked_nothing_or_open_for_too_long_is_over() {
    let scene = scene(false, EngineOptions::default()).await;
    let publish = || vec![TransactionOperation::Publish(event("s", "x"))];
    let mut transaction = scene.engine.begin("alice").await.unwrap();
    transaction.apply(publish()).await.unwrap();
    let asked = tokio::time::Instant::now();
    let error = transaction.out_of_time().await;
    assert_eq!(asked.elapsed().as_secs(), 10);
    assert!(matches!(error, EngineError::TransactionExpired { what: "idle", .. }), "{error:?}");
    transaction.rollback().await.unwrap();
    let events = scene.engine.read_stream(stream("s"), ReadFrom::Offset(0), 10).await.unwrap();
    assert_eq!(events, []);

    let opened = tokio::time::Instant::now();
    let mut transaction = scene.engine.begin("alice").await.unwrap();
    let error = loop {
        match tokio::time::timeout(secs(9), transaction.out_of_time()).await {
            Ok(error) => break error,
            Err(_) => _ = transaction.apply(publish()).await.unwrap(),
        }
    };
    assert_eq!(opened.elapsed().as_secs(), 60);
    assert!(matches!(error, EngineError::TransactionExpired { what: "open", .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn each_caller_has_so_many_transactions_and_each_so_many_operations() {
    let limits = TransactionLimits { per_subject: 2, ..TransactionLimits::default() };
    let options = EngineOptions { transactions: limits, ..EngineOptions::default() };
    let scene = scene(false, options).await;
    let one = scene.engine.begin("alice").await.unwrap();
    let mut two = scene.engine.begin("alice").await.unwrap();
    let third = scene.engine.begin("alice").await.unwrap_err();
    assert!(matches!(third, EngineError::Overloaded { .. }), "{third:?}");
    scene.engine.begin("bob").await.unwrap().rollback().await.unwrap();
    drop(one);
    scene.engine.begin("alice").await.unwrap().commit().await.unwrap();

    let publish = |count| vec![TransactionOperation::Publish(event("s", "x")); count];
    two.apply(publish(999)).await.unwrap();
    let beyond = two.apply(publish(2)).await.unwrap_err();
    let is_invalid =
        matches!(beyond.error, EngineError::InvalidArgument { field: "operations", .. });
    assert!(is_invalid && !two.is_over(), "{beyond:?}");
    two.apply(publish(1)).await.unwrap();
    two.commit().await.unwrap();
    let last = scene.memory.offset(stream("s"), ConsumerName::new("c").unwrap()).await.unwrap();
    assert_eq!(last, 0, "nobody saved anything");
    assert_eq!(scene.engine.publish(event("s", "x")).await.unwrap(), 1_001);
}

#[tokio::test(start_paused = true)]
async fn storages_without_a_faculty_say_so() {
    let scene = scene(true, EngineOptions::default()).await;
    let unsupported = |error: EngineError| {
        let is = matches!(&error, EngineError::Storage(it) if matches!(**it, StorageError::Unsupported { .. }));
        assert!(is, "{error:?}");
    };
    let channel = ChannelName::new("c").unwrap();
    unsupported(scene.engine.notify(channel.clone(), 0).await.unwrap_err());
    unsupported(scene.engine.listen(channel).await.err().unwrap());
    unsupported(scene.engine.begin("alice").await.err().unwrap());
    let operations = vec![TransactionOperation::Publish(event("s", "x"))];
    unsupported(scene.engine.commit(operations).await.unwrap_err().error);
    assert!(scene.engine.faculties().streams && !scene.engine.faculties().signals);
}

#[tokio::test(start_paused = true)]
async fn outboxes_have_their_own_policy_whatever_the_queues_have() {
    let mut options = EngineOptions { require_declared_queues: true, ..EngineOptions::default() };
    options.file.defaults = QueueConfig {
        retention: Retention { succeeded: Some(Duration::ZERO), ..Retention::default() },
        paused: Some(true),
        ..QueueConfig::default()
    };
    options.file.defaults.retry.max_attempts = Some(1);
    let scene = scene(false, options).await;
    let from = outbox("o");
    scene.engine.enqueue_message(message("m", from.clone())).await.unwrap();
    for _ in 0..7 {
        let claim = claim_message(&scene.engine, &from).await;
        let report = support::report("x");
        scene.engine.release_message(claim, report, Duration::ZERO).await.unwrap();
    }
    let claim = claim_message(&scene.engine, &from).await;
    assert!(!scene.engine.mark_projected(claim.clone()).await.unwrap());
    let kept = scene.engine.get(id("m"), Some(from.clone())).await.unwrap();
    assert_eq!(kept.status, TaskStatus::Succeeded);
    assert!(scene.engine.mark_projected(claim).await.unwrap(), "it is known for a while");
    assert_eq!(scene.engine.count_unprojected(None).await.unwrap(), [(from, 0)]);
}

#[tokio::test(start_paused = true)]
async fn maintenance_reaches_outboxes() {
    let interval = secs(1_800);
    let options = EngineOptions {
        maintenance_interval: interval,
        config_refresh: interval,
        ..EngineOptions::default()
    };
    let scene = scene(false, options).await;
    let from = outbox("o");
    scene.engine.enqueue_message(message("m", from.clone())).await.unwrap();
    let claim = claim_message(&scene.engine, &from).await;
    scene.engine.mark_projected(claim.clone()).await.unwrap();
    tokio::time::sleep(secs(23 * 3_600)).await;
    assert!(scene.engine.mark_projected(claim.clone()).await.unwrap());
    tokio::time::sleep(secs(2 * 3_600)).await;
    let gone = scene.engine.mark_projected(claim).await.unwrap_err();
    assert!(matches!(gone, EngineError::OutboxMissing { .. }), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_hears_of_what_a_transaction_published_after_its_commit() {
    let scene = scene(false, EngineOptions::default()).await;
    let mut events = scene.engine.subscribe(subscription("s")).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap(), []);
    let mut transaction = scene.engine.begin("alice").await.unwrap();
    transaction.apply(vec![TransactionOperation::Publish(event("s", "x"))]).await.unwrap();
    settle().await;
    assert!(events.next().now_or_never().is_none());
    transaction.commit().await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap()[0].payload, "x");
    let listening: &dyn Signals = scene.memory.signals().unwrap();
    assert!(listening.listen(vec![Topic::Stream(stream("s"))]).await.is_ok());
}
