//! What coordination does beyond the kit's cases: servers that are killed, demoted or cut off in the
//! middle of a commit, and other writers that come at the same time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod namespace;
mod served;

use futures::StreamExt as _;
use mongodb::bson::{Binary, Document, doc, spec::BinarySubtype};
use rdq_compliance::crew::{new_task, queue};
use rdq_spi::{
    Applied, ChannelName, CompareAndSet, Mutation, NewEvent, Operation, ReadFrom, ReadParams,
    RecordKey, RecordName, RecordSpace, Rejected, Storage, StorageError, StreamEvent, StreamName,
    Topic, Wake,
};
use rdq_test_servers::{LocalServer, Proxy};
use served::{Served, mutation};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// What the command begins with that ends a transaction.
const COMMIT: &[u8] = b"\x10commitTransaction\0";
const LOST: Duration = Duration::from_secs(60);

fn stream() -> StreamName {
    StreamName::new("s").unwrap()
}

fn key(name: &str) -> RecordKey {
    RecordKey { space: RecordSpace::Caller, name: RecordName::new(name).unwrap() }
}

/// A mutation, an event, a task and a record of one name.
fn together(name: &str) -> Vec<Operation> {
    let event = NewEvent { stream: stream(), key: None, payload: name.to_owned().into() };
    let record = CompareAndSet { key: key(name), value: Some("x".into()), expected_revision: 0 };
    vec![
        Operation::Observe(mutation(name)),
        Operation::Publish(event),
        Operation::Enqueue(new_task(name, &queue("q"))),
        Operation::CompareAndSet(record),
    ]
}

async fn commit(store: &dyn Storage, name: &str) -> Result<Vec<Applied>, Rejected> {
    store.transactions().unwrap().commit(together(name)).await
}

async fn events(store: &dyn Storage, after: i64) -> Result<Vec<StreamEvent>, StorageError> {
    let from = ReadFrom::Offset(after);
    let params = ReadParams { stream: stream(), from, limit: 1_000, bytes_max: 1 << 20 };
    store.streams().unwrap().read(params).await
}

async fn all_events(store: &dyn Storage) -> Vec<StreamEvent> {
    let mut all: Vec<StreamEvent> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.offset);
        let more = events(store, after).await.unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

async fn has_task(store: &dyn Storage, name: &str) -> bool {
    store.get(new_task(name, &queue("q")).id).await.is_ok()
}

async fn has_record(store: &dyn Storage, name: &str) -> bool {
    store.records().unwrap().get_record(key(name)).await.unwrap().is_some()
}

async fn observed(store: &dyn Storage, name: &str) -> Option<Mutation> {
    store.ledger().unwrap().mutation(mutation(name).scope).await.unwrap()
}

/// Publishers and a reader, while something happens to the server again and again.
struct Load {
    is_over: Arc<AtomicBool>,
    publishers: Vec<tokio::task::JoinHandle<Vec<(String, bool)>>>,
    reader: tokio::task::JoinHandle<Vec<StreamEvent>>,
}

impl Load {
    async fn start(open: impl AsyncFn() -> Arc<dyn Storage>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut publishers = Vec::new();
        for publisher in 0..4 {
            let (store, is_over) = (open().await, Arc::clone(&is_over));
            publishers.push(tokio::spawn(async move {
                let mut sent = Vec::new();
                for number in 0.. {
                    let name = format!("{publisher}-{number}");
                    let is_done = commit(&*store, &name).await.is_ok();
                    sent.push((name, is_done));
                    if is_over.load(Ordering::Acquire) {
                        break;
                    }
                }
                sent
            }));
        }
        let (store, over) = (open().await, Arc::clone(&is_over));
        let reader = tokio::spawn(async move {
            let mut seen: Vec<StreamEvent> = Vec::new();
            while !over.load(Ordering::Acquire) {
                let after = seen.last().map_or(0, |event| event.offset);
                seen.extend(events(&*store, after).await.unwrap_or_default());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            seen
        });
        Self { is_over, publishers, reader }
    }

    /// Until so many more events are there.
    async fn goes_on(&self, store: &dyn Storage) {
        let mut after = None;
        loop {
            let last =
                events(store, after.unwrap_or(0)).await.ok().and_then(|it| it.last().cloned());
            match (after, last) {
                (None, last) => after = Some(last.map_or(0, |event| event.offset)),
                (Some(before), Some(last)) if last.offset > before + 20 => return,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Everything is there as a whole or not at all, what was acknowledged is there, and whoever read
    /// along missed nothing. Answers how many commits were not acknowledged.
    async fn judge(self, store: &dyn Storage) -> usize {
        self.is_over.store(true, Ordering::Release);
        let mut sent = Vec::new();
        for publisher in self.publishers {
            sent.extend(publisher.await.unwrap());
        }
        let seen = self.reader.await.unwrap();
        let there = all_events(store).await;
        assert_eq!(seen, there[..seen.len()], "nothing appeared below what was seen");
        let texts: Vec<_> =
            there.iter().map(|it| String::from_utf8_lossy(&it.payload).into_owned()).collect();
        let offsets: HashMap<_, _> =
            texts.iter().zip(there.iter().map(|event| event.offset)).collect();
        assert_eq!(offsets.len(), texts.len(), "none twice");
        for (name, is_acknowledged) in &sent {
            let is_there = offsets.contains_key(name);
            assert!(is_there || !is_acknowledged, "{name} was acknowledged and is gone");
            assert_eq!(has_task(store, name).await, is_there, "{name}");
            assert_eq!(has_record(store, name).await, is_there, "{name}");
            let found = observed(store, name).await;
            let published = found.as_ref().and_then(|mutation| mutation.answers.first().copied());
            let offset = offsets.get(name).copied().map(Applied::Published);
            assert_eq!(published, offset, "{name}: {found:?}");
        }
        sent.iter().filter(|(_, is_acknowledged)| !is_acknowledged).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_in_the_middle_of_commits_keeps_each_as_a_whole() {
    let Some(served) = Served::start().await else { return };
    let load = Load::start(async || served.handle().await).await;
    let store = served.handle().await;
    for _ in 0..3 {
        load.goes_on(&*store).await;
        served.process(LocalServer::kill);
        tokio::time::sleep(Duration::from_millis(200)).await;
        served.process(LocalServer::start_again).unwrap();
    }
    load.goes_on(&*store).await;
    let failed = load.judge(&*served.handle().await).await;
    assert!(failed > 0, "the kills were not noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_steps_down_in_the_middle_of_commits_keeps_each_as_a_whole() {
    let Some(served) = Served::start().await else { return };
    let load = Load::start(async || served.handle().await).await;
    let store = served.handle().await;
    for _ in 0..3 {
        load.goes_on(&*store).await;
        served.step_down().await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        served.step_up().await;
    }
    load.goes_on(&*store).await;
    load.judge(&*served.handle().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_was_lost_is_asked_for_again() {
    let Some(served) = Served::start().await else { return };
    let proxy = Proxy::before(served.address()).await.unwrap();
    let store = served.open_through(proxy.address()).await;
    for round in 0..3 {
        let name = format!("t{round}");
        proxy.lose_answer_to(COMMIT);
        let applied = commit(&store, &name).await.unwrap();
        assert_eq!(applied[1], Applied::Published(round + 1), "once");
        assert_eq!(observed(&store, &name).await.unwrap().answers, applied[1..]);
        assert!(has_task(&store, &name).await && has_record(&store, &name).await);
    }
    assert_eq!(proxy.lost(), 3);
    assert_eq!(all_events(&store).await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_left_open_elsewhere_is_contention_and_nothing_happens() {
    let Some(served) = Served::start().await else { return };
    let store = served.open().await;
    commit(&store, "before").await.unwrap();
    // Another publisher that stands still in the middle.
    let database = served.database().await;
    let mut session = database.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let counters = database.collection::<Document>("streams");
    let touched = doc! { "$inc": { "last": 1_i64 } };
    counters.update_one(doc! { "_id": "s" }, touched).session(&mut session).await.unwrap();

    let rejected = commit(&store, "during").await.unwrap_err();

    assert!(matches!(rejected.error, StorageError::Contention { .. }), "{rejected:?}");
    assert!(!has_task(&store, "during").await && !has_record(&store, "during").await);
    let last = all_events(&store).await.last().unwrap().offset;
    session.abort_transaction().await.unwrap();
    let applied = commit(&store, "after").await.unwrap();
    assert_eq!(applied[1], Applied::Published(last + 1), "what was rolled back leaves none out");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observation_that_is_left_open_elsewhere_is_waited_for() {
    let Some(served) = Served::start().await else { return };
    let store = served.handle().await;
    let database = served.database().await;
    // Another server that stands still in the middle.
    let elsewhere = async |key: &str| {
        let mut session = database.client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let [s, o, k] = ["subject", "operation", key].map(|part| Binary {
            subtype: BinarySubtype::Generic,
            bytes: part.as_bytes().to_vec(),
        });
        let id = doc! { "s": s, "o": o, "k": k };
        let mutations = database.collection::<Document>("mutations");
        mutations.insert_one(doc! { "_id": id }).session(&mut session).await.unwrap();
        session
    };
    let mut stuck = elsewhere("stuck").await;
    let rejected = commit(&*store, "stuck").await.unwrap_err();
    assert!(matches!(rejected.error, StorageError::Contention { .. }), "{rejected:?}");
    assert!(!has_task(&*store, "stuck").await && !has_record(&*store, "stuck").await);
    stuck.abort_transaction().await.unwrap();
    commit(&*store, "stuck").await.unwrap();

    let mut slow = elsewhere("slow").await;
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { commit(&*store, "slow").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished(), "it waits");
    slow.abort_transaction().await.unwrap();

    let applied = waiting.await.unwrap().unwrap();
    assert_eq!(observed(&*store, "slow").await.unwrap().answers, applied[1..]);
    let again = commit(&*store, "slow").await.unwrap_err();
    assert!(matches!(again.error, StorageError::MutationObserved { .. }), "{again:?}");
    assert_eq!(all_events(&*store).await.len(), 2, "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn wakes_go_on_after_their_connection_was_cut() {
    let Some(served) = Served::start().await else { return };
    let proxy = Proxy::before(served.address()).await.unwrap();
    let (store, other) = (served.open_through(proxy.address()).await, served.open().await);
    for round in 0..5 {
        // Told beside a listener that is cut off, before or after.
        let channel = ChannelName::new(format!("c{round}")).unwrap();
        let topic = Topic::Channel(channel.clone());
        let mut wakes = store.signals().unwrap().listen(vec![topic.clone()]).await.unwrap();
        proxy.cut_all();
        other.signals().unwrap().notify(vec![channel]).await.unwrap();
        proxy.cut_all();
        let wake = tokio::time::timeout(LOST, wakes.next()).await.expect("a wake was lost");
        assert!([Some(Wake::News(topic)), Some(Wake::Reconnected)].contains(&wake), "{wake:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_is_removed_by_the_server_and_its_readers_do_not_mind() {
    let Some(served) = Served::start().await else { return };
    let (store, other) = (served.open().await, served.open().await);
    let channel = ChannelName::new("c").unwrap();
    let topic = Topic::Channel(channel.clone());
    let mut wakes = other.signals().unwrap().listen(vec![topic.clone()]).await.unwrap();
    store.signals().unwrap().notify(vec![channel.clone()]).await.unwrap();
    let told = served.database().await.collection::<Document>("wakeups");
    let removed = told.delete_many(doc! { "told_at": { "$exists": true } }).await.unwrap();
    assert_eq!(removed.deleted_count, 1);
    let indexes = told.list_indexes().await.unwrap();
    let indexes: Vec<_> = indexes.collect().await;
    assert!(indexes.iter().flatten().any(|index| {
        index.options.as_ref().is_some_and(|options| options.expire_after.is_some())
    }));

    let heard = tokio::time::timeout(LOST, wakes.next()).await.expect("a wake was lost");
    assert!([Some(Wake::News(topic.clone())), Some(Wake::Reconnected)].contains(&heard));
    store.signals().unwrap().notify(vec![channel]).await.unwrap();
    let heard = tokio::time::timeout(LOST, wakes.next()).await.expect("a wake was lost");
    assert!([Some(Wake::News(topic)), Some(Wake::Reconnected)].contains(&heard));
}
