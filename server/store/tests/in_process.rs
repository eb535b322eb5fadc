//! rdq in process, as an application uses it, on each storage that needs no server.

use rdq_store::{
    EnqueueOpts, JobHandle, JobState, QueueOpts, Result, ScheduleOpts, StopToken, Store,
    StoreError, decode_payload, encode_payload,
};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(60);
/// Longer than anything here takes, on however slow a machine.
const LOST: Duration = Duration::from_secs(60);

/// Tells a story on a store in memory and on one in a file.
async fn on_each(story: impl AsyncFn(Store)) {
    story(Store::open("memory:").await.expect("memory")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("rdq.db").display());
    let store = Store::open(&url).await.expect("a file");
    story(store.clone()).await;
    store.close().await;
}

/// What an operation of a claim answers.
type Answer = std::pin::Pin<Box<dyn Future<Output = Result<bool>> + Send>>;

fn short_claims() -> QueueOpts {
    QueueOpts { visibility_timeout: SHORT, ..QueueOpts::default() }
}

async fn lapse() {
    tokio::time::sleep(SHORT + Duration::from_millis(40)).await;
}

#[tokio::test]
async fn jobs_are_claimed_kept_retried_failed_and_done() {
    on_each(async |store| {
        let opts = QueueOpts { visibility_timeout: LONG, ..QueueOpts::default() };
        let queue = store.queue("emails", opts).expect("a queue");
        let id = queue.enqueue(EnqueueOpts::default(), &vec![1, 2, 3]).await.expect("an id");
        let waiting = queue.get_job(&id).await.expect("a look").expect("a job");
        assert_eq!((waiting.state, waiting.max_attempts), (JobState::Pending, Some(3)));

        let claim = queue.claim_one("worker").await.expect("a claim").expect("a job");
        assert_eq!(claim.job().payload_as::<Vec<u32>>().expect("numbers"), [1, 2, 3]);
        assert!(matches!(claim.job().payload_as::<String>(), Err(StoreError::Codec(_))));
        assert!(claim.heartbeat(LONG).await.expect("a heartbeat"));
        assert!(claim.retry(Some("not now"), Some(Duration::ZERO)).await.expect("a retry"));

        let claim = queue.claim_one("worker").await.expect("a claim").expect("a job");
        assert_eq!(claim.job().last_error.as_deref(), Some("not now"));
        assert!(claim.retry(None, Some(Duration::ZERO)).await.expect("a retry"));
        let claim = queue.claim_one("worker").await.expect("a claim").expect("a job");
        assert!(claim.retry(Some("the third time"), None).await.expect("a retry"));
        let dead = queue.get_job(&id).await.expect("a look").expect("a job");
        assert_eq!((dead.state, dead.attempts), (JobState::Dead, 3), "its attempts are spent");

        let id = queue.enqueue(EnqueueOpts::default(), "x").await.expect("an id");
        let claim = queue.claim_one("worker").await.expect("a claim").expect("a job");
        assert!(claim.fail(None).await.expect("a failure"));
        let dead = queue.get_job(&id).await.expect("a look").expect("a job");
        assert_eq!((dead.state, dead.last_error.as_deref()), (JobState::Dead, Some("failed")));
    })
    .await;
}

#[tokio::test]
async fn once_the_deadline_lapsed_every_operation_answers_false() {
    on_each(async |store| {
        let queue = store.queue("short", short_claims()).expect("a queue");
        let ops: [fn(JobHandle) -> Answer; 4] = [
            |claim| Box::pin(async move { claim.ack().await }),
            |claim| Box::pin(async move { claim.retry(None, None).await }),
            |claim| Box::pin(async move { claim.fail(Some("late")).await }),
            |claim| Box::pin(async move { claim.heartbeat(LONG).await }),
        ];
        for op in ops {
            let id = queue.enqueue(EnqueueOpts::default(), "x").await.expect("an id");
            let claim = queue.claim_one("worker").await.expect("a claim").expect("a job");
            lapse().await;
            assert!(!op(claim).await.expect("an answer"), "nobody reclaimed it, yet it is over");
            let job = queue.get_job(&id).await.expect("a look").expect("a job");
            assert_eq!((job.state, job.attempts), (JobState::InFlight, 0), "untouched");
            assert!(queue.cancel(&id).await.expect("a cancellation"));
        }
        let ids: Vec<_> = [
            queue.enqueue(EnqueueOpts::default(), "x").await,
            queue.enqueue(EnqueueOpts::default(), "y").await,
        ]
        .into_iter()
        .map(|id| id.expect("an id"))
        .collect();
        let mut jobs = queue.claim_batch("worker", 2).await.expect("claims");
        assert!(queue.cancel(&ids[0]).await.expect("a cancellation"));
        jobs.sort_by_key(|claim| claim.job().id.clone());
        let good = queue.ack_batch(jobs).await.expect("acknowledged");
        assert!(good <= 1, "one was cancelled: {good}");
        assert!(!queue.cancel("nobody-knows-it").await.expect("an answer"));
        assert_eq!(queue.claim_batch("worker", 0).await.expect("none").len(), 0);
        assert_eq!(queue.claim_batch("worker", -1).await.expect("none").len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_happens_wholly_or_not_at_all() {
    on_each(async |store| {
        let queue = store.queue("jobs", QueueOpts::default()).expect("a queue");
        let stream = store.stream("events").expect("a stream");
        let write = async |tx: &mut rdq_store::TxHandle| -> Result<String> {
            let offset = tx.publish_with_key_tx("events", "k", "event").await?;
            tx.save_offset_tx("events", "reader", offset).await?;
            tx.notify_tx("channel", &()).await?;
            tx.outbox_enqueue_tx("outbox", Duration::ZERO, "message").await?;
            tx.compare_and_set_tx("record", "value", 0).await?;
            let id = tx.enqueue_tx("jobs", EnqueueOpts::default(), "job").await?;
            assert_eq!(tx.read_since_tx("events", 0, 10).await?.len(), 1, "its own event");
            assert_eq!(tx.read_from_consumer_tx("events", "reader", 10).await?, []);
            assert_eq!(tx.get_offset_tx("events", "reader").await?, offset);
            assert!(tx.get_job_tx("jobs", &id).await?.is_some(), "its own job");
            Ok(id)
        };
        let nothing = async || {
            assert_eq!(stream.read_since(0, 10).await.expect("a read"), []);
            assert_eq!(stream.get_offset("reader").await.expect("an offset"), 0);
            assert!(queue.claim_one("w").await.expect("a claim").is_none());
            assert!(store.get_record("record").await.expect("a read").is_none());
        };
        let mut tx = store.begin_tx().await.expect("a transaction");
        write(&mut tx).await.expect("written");
        nothing().await;
        drop(tx);
        nothing().await;
        let failed: Result<()> = store
            .with_tx(async |tx| {
                write(tx).await?;
                Err(StoreError::Contention)
            })
            .await;
        assert!(matches!(failed, Err(StoreError::Contention)), "{failed:?}");
        nothing().await;
        let panicking = tokio::spawn({
            let store = store.clone();
            async move {
                let mut tx = store.begin_tx().await.expect("a transaction");
                tx.publish_tx("events", "never").await.expect("published");
                panic!("on purpose");
            }
        });
        assert!(panicking.await.is_err());
        nothing().await;

        let mut wakes = store.listen("channel").await.expect("a listener");
        let id = store.with_tx(write).await.expect("committed");
        let wake = tokio::time::timeout(LOST, wakes.recv()).await.expect("a wake").expect("a wake");
        assert_eq!(wake.channel, "channel");
        let event = stream.read_since(0, 10).await.expect("a read").remove(0);
        assert_eq!((event.key.as_deref(), event.stream.as_str()), (Some("k"), "events"));
        assert_eq!(event.payload_as::<String>().expect("text"), "event");
        let claim = queue.claim_one("w").await.expect("a claim").expect("the job");
        assert_eq!(claim.job().id, id);
        let record = store.get_record("record").await.expect("a read").expect("a record");
        assert_eq!(decode_payload::<String>(&record.value).expect("text"), "value");
        let late = store.compare_and_set("record", "late", 0).await;
        assert!(matches!(late, Err(StoreError::CasConflict { expected_revision: 0 })), "{late:?}");
    })
    .await;
}

#[tokio::test]
async fn a_subscription_goes_on_where_its_consumer_saved() {
    on_each(async |store| {
        let stream = store.stream("log").expect("a stream");
        for number in 0..3 {
            stream.publish(&number).await.expect("an offset");
        }
        let mut events = stream.subscribe("reader").await.expect("a subscription");
        events.save_offset().await.expect("nothing to save");
        let mut next = async || {
            let event = tokio::time::timeout(LOST, events.recv()).await.expect("an event");
            event.expect("it goes on").expect("an event").payload_as::<u32>().expect("a number")
        };
        assert_eq!([next().await, next().await], [0, 1]);
        events.save_offset().await.expect("saved");
        drop(events);
        let mut events = stream.subscribe("reader").await.expect("a subscription");
        let mut next = async || {
            let event = tokio::time::timeout(LOST, events.recv()).await.expect("an event");
            event.expect("it goes on").expect("an event").payload_as::<u32>().expect("a number")
        };
        assert_eq!(next().await, 2);
        let (received, published) = tokio::join!(next(), stream.publish(&3));
        published.expect("an offset");
        assert_eq!(received, 3);
        assert_eq!(stream.trim_to(i64::MAX).await.expect("a trim"), 4);
        assert_eq!(stream.trim_to(-1).await.expect("a trim"), 0);
        assert_eq!(stream.read_since(0, 0).await.expect("a read"), []);
        assert_eq!(stream.read_since(0, -5).await.expect("a read"), []);
    })
    .await;
}

#[tokio::test]
async fn an_outbox_is_relayed_one_message_at_a_time() {
    on_each(async |store| {
        let outbox = store.outbox("mails").expect("an outbox");
        for text in ["one", "two"] {
            outbox.enqueue(Duration::ZERO, text).await.expect("an id");
        }
        let delivered = std::sync::Mutex::new(Vec::new());
        let deliver = async |message: &rdq_store::Message| -> Result<(), String> {
            let text = message.payload_as::<String>().map_err(|error| error.to_string())?;
            delivered.lock().expect("no panic").push((text, message.attempt));
            Ok(())
        };
        let refuse = async |_: &rdq_store::Message| Err::<(), _>("the mail server is down");
        assert!(outbox.run_once("relay", refuse).await.expect("a run"));
        assert!(outbox.run_once("relay", deliver).await.expect("a run"));
        assert!(!outbox.run_once("relay", deliver).await.expect("a run"), "the first waits");
        assert_eq!(*delivered.lock().expect("no panic"), [("two".to_owned(), 1)]);
    })
    .await;
}

#[tokio::test]
async fn locks_and_schedules_have_one_holder() {
    on_each(async |store| {
        let mut lock = store.try_lock("l", "me", LONG).await.expect("a try").expect("acquired");
        assert!(store.try_lock("l", "you", LONG).await.expect("a try").is_none());
        assert!(lock.renew(LONG).await.expect("renewed"));
        let first = lock.generation();
        assert!(lock.release().await.expect("released"));
        let next = store.try_lock("l", "you", LONG).await.expect("a try").expect("acquired");
        assert!(next.generation() > first);
        assert!(store.try_lock("l", "you", Duration::ZERO).await.is_err(), "a ttl of nothing");

        let queue = store.queue("ticks", QueueOpts::default()).expect("a queue");
        let opts = ScheduleOpts::default();
        let stored = store.schedule("tick", "@every 1s", "ticks", "tick", opts.clone()).await;
        assert!(stored.expect("stored").next_boundary_at.is_some());
        let stop = StopToken::new();
        let runners: Vec<_> = (0..2)
            .map(|_| {
                let (store, stop) = (store.clone(), stop.clone());
                tokio::spawn(async move { store.run_schedules(stop).await })
            })
            .collect();
        let ticks = AtomicU32::new(0);
        let work = async {
            while ticks.load(Ordering::Relaxed) < 2 {
                match queue.claim_one("worker").await.expect("a claim") {
                    Some(claim) => {
                        assert_eq!(claim.job().payload_as::<String>().expect("text"), "tick");
                        assert!(claim.ack().await.expect("done"));
                        ticks.fetch_add(1, Ordering::Relaxed);
                    }
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        tokio::time::timeout(LOST, work).await.expect("ticks");
        stop.cancel();
        for runner in runners {
            runner.await.expect("a runner").expect("stopped in peace");
        }
        assert!(store.unschedule("tick").await.expect("removed"));
        assert!(!store.unschedule("tick").await.expect("none"));
        let bad = store.schedule("bad", "@every 0s", "ticks", "x", opts).await;
        assert!(matches!(bad, Err(StoreError::InvalidSpec(_))), "{bad:?}");
    })
    .await;
}

#[tokio::test]
async fn names_are_checked_at_every_entry() {
    on_each(async |store| {
        let reserved = "__rdq_x";
        let invalid = |error: StoreError| matches!(error, StoreError::InvalidName { .. });
        let is_reserved = |error: StoreError| matches!(error, StoreError::ReservedName { .. });
        for (name, expected) in [
            ("", &invalid as &dyn Fn(StoreError) -> bool),
            ("  ", &invalid),
            ("a\0b", &invalid),
            (reserved, &is_reserved),
        ] {
            assert!(expected(store.queue(name, QueueOpts::default()).expect_err(name)));
            assert!(expected(store.outbox(name).expect_err(name)));
            assert!(expected(store.stream(name).expect_err(name)));
            assert!(expected(store.notify(name, "x").await.expect_err(name)));
            assert!(expected(store.listen(name).await.expect_err(name)));
            assert!(expected(store.try_lock(name, "me", LONG).await.expect_err(name)));
            assert!(expected(store.unschedule(name).await.expect_err(name)));
            let opts = ScheduleOpts::default;
            let put = store.schedule(name, "@daily", "q", "x", opts()).await;
            assert!(expected(put.expect_err(name)));
            let put = store.schedule("s", "@daily", name, "x", opts()).await;
            assert!(expected(put.expect_err(name)), "a schedule cannot target {name:?}");
            let mut tx = store.begin_tx().await.expect("a transaction");
            let enqueued = tx.enqueue_tx(name, EnqueueOpts::default(), "x").await;
            assert!(expected(enqueued.expect_err(name)));
            assert!(expected(tx.publish_tx(name, "x").await.expect_err(name)));
            assert!(expected(tx.notify_tx(name, "x").await.expect_err(name)));
            assert!(expected(tx.save_offset_tx(name, "c", 1).await.expect_err(name)));
            let enqueued = tx.outbox_enqueue_tx(name, Duration::ZERO, "x").await;
            assert!(expected(enqueued.expect_err(name)));
        }
        let stream = store.stream("s").expect("a stream");
        assert!(invalid(stream.publish_with_key("", "x").await.expect_err("an empty key")));
        assert!(invalid(stream.save_offset(" ", 1).await.expect_err("a blank consumer")));
        stream.save_offset("__rdq_c", 1).await.expect("a consumer's name is its own");
    })
    .await;
}

#[tokio::test]
async fn a_closed_store_says_so_and_ends_its_receivers() {
    let store = Store::open("memory:").await.expect("memory");
    let stream = store.stream("s").expect("a stream");
    let mut wakes = store.listen("c").await.expect("a listener");
    let mut events = stream.subscribe("r").await.expect("a subscription");
    store.close().await;
    let ended = async { (wakes.recv().await, events.recv().await.is_none()) };
    let (wake, is_over) = tokio::time::timeout(LOST, ended).await.expect("an end");
    assert!(wake.is_none() && is_over);
    assert!(matches!(stream.publish("x").await, Err(StoreError::Closed)));
    assert!(matches!(store.begin_tx().await.map(drop), Err(StoreError::Closed)));
    let queue = store.queue("q", QueueOpts::default()).expect("a queue");
    let refused = queue.enqueue(EnqueueOpts::default(), "x").await;
    assert!(matches!(refused, Err(StoreError::Closed)), "{refused:?}");
}

#[test]
fn what_is_no_json_is_told() {
    let bytes = encode_payload(&serde_json::json!({"a": [1, null, "ä"]})).expect("JSON");
    assert_eq!(&bytes[..], "{\"a\":[1,null,\"ä\"]}".as_bytes());
    let map: std::collections::HashMap<(u8, u8), u8> = [((1, 2), 3)].into();
    assert!(matches!(encode_payload(&map), Err(StoreError::Codec(_))), "keys must be text");
}
