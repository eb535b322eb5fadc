//! Coordination under what happens to a server, and commits beside the calls of their own that they
//! stand for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod servers;

use bytes::Bytes;
use futures::StreamExt as _;
use rdq_compliance::{
    Random,
    crew::{claim_from, new_task, queue, resolution},
};
use rdq_redis::{RedisConfig, RedisStorage};
use rdq_spi::{
    Applied, Call, ChannelName, Claim, CompareAndSet, ConsumerName, Hold, Ledger as _, ListParams,
    LockName, Locks as _, Moment, Mutation, MutationKey, MutationKind, MutationScope,
    MutationStatus, NewEvent, NewMutation, NewTask, Operation, OperationName, Outcome, OwnerName,
    PruneParams, QueueName, QueueStats, ReadFrom, ReadParams, RecordKey, RecordName, RecordSpace,
    Records as _, Rejected, Resolution, SaveOffset, Signals as _, Storage as _, StorageError,
    StreamEvent, StreamName, Streams as _, SubjectName, Task, TaskId, TaskStatus, Topic,
    Transactions as _, TrimParams, TryLock, Wake,
};
use rdq_test_servers::{LocalServer, Proxy, redis::Flavor};
use servers::Served;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    mem::discriminant,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const LEASE: Duration = Duration::from_secs(600);
/// Pairs of stores, and commits in each; most pairs end sooner, with one that fails.
const ROUNDS: usize = 16;
const COMMITS_MAX: usize = 12;
/// Longer than a wake takes on however slow a machine.
const LOST: Duration = Duration::from_secs(60);

/// The server under test, unless it is not installed and need not be.
async fn start() -> Option<Served> {
    if let Some(reason) = Flavor::Redis.missing_locally() {
        eprintln!("ignored: {reason}");
        return None;
    }
    Some(Served::start_with(Flavor::Redis, &[]).await)
}

/// The same with a disk that it does not wait for.
async fn start_quick() -> Option<Served> {
    if Flavor::Redis.missing_locally().is_some() {
        return start().await;
    }
    Some(Served::start_with(Flavor::Redis, &["--appendonly", "no"]).await)
}

fn stream(name: &str) -> StreamName {
    StreamName::new(name).unwrap()
}

fn consumer() -> ConsumerName {
    ConsumerName::new("consumer").unwrap()
}

fn event(stream: &StreamName, payload: &str) -> NewEvent {
    NewEvent { stream: stream.clone(), key: None, payload: payload.to_owned().into() }
}

fn save(stream: &StreamName, offset: i64) -> SaveOffset {
    SaveOffset { stream: stream.clone(), consumer: consumer(), offset }
}

fn key(name: &str) -> RecordKey {
    RecordKey { space: RecordSpace::Caller, name: RecordName::new(name).unwrap() }
}

fn mutation(name: &str) -> NewMutation {
    NewMutation {
        scope: MutationScope {
            subject: SubjectName::new("subject").unwrap(),
            operation: OperationName::new("operation").unwrap(),
            key: MutationKey::new(name).unwrap(),
        },
        kind: MutationKind::new("kind").unwrap(),
        eligibility_claim: "claim".into(),
        fingerprint: [1; 32],
        status: MutationStatus::Accepted,
        response: name.to_owned().into(),
    }
}

fn set(name: &str, expected_revision: i64) -> CompareAndSet {
    let value = Some(Bytes::from_static(b"value"));
    CompareAndSet { key: key(name), value, expected_revision }
}

fn unset(name: &str, expected_revision: i64) -> CompareAndSet {
    CompareAndSet { key: key(name), value: None, expected_revision }
}

async fn read_all(store: &RedisStorage, stream: &StreamName) -> Vec<StreamEvent> {
    let mut events: Vec<StreamEvent> = Vec::new();
    loop {
        let params = ReadParams {
            stream: stream.clone(),
            from: ReadFrom::Offset(events.last().map_or(0, |event| event.offset)),
            limit: 1000,
            bytes_max: 1 << 20,
        };
        let page = store.read(params).await.unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_again_and_again_keeps_commits_whole() {
    let Some(served) = start().await else { return };
    let (queue, stream) = (queue("q"), stream("s"));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut hands = Vec::new();
    for hand in 0..4 {
        let (store, is_over) = (served.open().await, is_over.clone());
        let (queue, stream) = (queue.clone(), stream.clone());
        hands.push(tokio::spawn(async move {
            let mut sent = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let id = format!("{hand}-{}", sent.len());
                let operations = vec![
                    Operation::Observe(mutation(&id)),
                    Operation::Publish(event(&stream, &id)),
                    Operation::Enqueue(new_task(&id, &queue)),
                    Operation::CompareAndSet(set(&id, 0)),
                ];
                let answer = store.commit(operations).await;
                let offset = answer.as_ref().ok().map(|applied| match applied[1] {
                    Applied::Published(offset) => offset,
                    ref other => panic!("{other:?}"),
                });
                if answer.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                sent.push((id, offset));
            }
            sent
        }));
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        served.process(LocalServer::kill);
        tokio::time::sleep(Duration::from_millis(100)).await;
        served.process(LocalServer::start_again).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    is_over.store(true, Ordering::Relaxed);
    let mut sent = Vec::new();
    for hand in hands {
        sent.extend(hand.await.unwrap());
    }

    let store = served.open().await;
    let events = read_all(&store, &stream).await;
    assert!(events.windows(2).all(|pair| pair[0].offset < pair[1].offset));
    let offsets: HashMap<_, _> =
        events.iter().map(|event| (event.payload.clone(), event.offset)).collect();
    assert_eq!(offsets.len(), events.len(), "no event twice");
    let mut acknowledged = 0;
    for (id, answered) in sent {
        let published = offsets.get(id.as_bytes());
        let is_there = published.is_some();
        acknowledged += u32::from(answered.is_some());
        assert!(answered.is_none() || answered.as_ref() == published, "{id}: {answered:?}");
        let task = store.get(TaskId::new(&id).unwrap()).await;
        assert_eq!(task.is_ok(), is_there, "{id}");
        let record = store.get_record(key(&id)).await.unwrap();
        assert_eq!(record.is_some(), is_there, "{id}");
        let observed = store.mutation(mutation(&id).scope).await.unwrap();
        assert_eq!(observed.is_some(), is_there, "{id}");
        if let Some(observed) = observed {
            assert_eq!(observed.answers[0], Applied::Published(*published.unwrap()), "{id}");
        }
    }
    assert!(acknowledged > 0);
}

/// The record that a repetition gets.
fn observed_before(answer: Result<Vec<Applied>, Rejected>) -> Mutation {
    match answer {
        Err(Rejected { index: Some(0), error: StorageError::MutationObserved { mutation } }) => {
            *mutation
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_was_lost_says_so_and_is_done_once() {
    let Some(served) = start().await else { return };
    let address = served.address();
    let proxy = Proxy::before(address.trim_start_matches("redis://")).await.unwrap();
    let url = served.url_through(&format!("redis://{}", proxy.address()));
    let store = RedisStorage::connect(RedisConfig::from_url(&url).unwrap()).await.unwrap();
    let lose_answer_of = |function: &str| proxy.lose_answer_to(format!("_{function}\r\n"));
    let unknown = |error: StorageError| {
        assert!(matches!(error, StorageError::OutcomeUnknown { .. }), "{error:?}");
    };
    let (queue, stream) = (queue("q"), stream("s"));

    lose_answer_of("commit");
    let operations = vec![
        Operation::Enqueue(new_task("t", &queue)),
        Operation::Publish(event(&stream, "one")),
        Operation::CompareAndSet(set("r", 0)),
    ];
    let lost = store.commit(operations.clone()).await.unwrap_err();
    assert_eq!(lost.index, None);
    unknown(lost.error);
    let again = store.commit(operations).await.unwrap_err();
    assert_eq!(again.index, Some(2), "the first one did it: {again:?}");
    assert_eq!(read_all(&store, &stream).await.len(), 1);

    lose_answer_of("commit");
    let observing = vec![Operation::Observe(mutation("m"))];
    unknown(store.commit(observing.clone()).await.unwrap_err().error);
    assert_eq!(observed_before(store.commit(observing).await).first, mutation("m"));
    lose_answer_of("prune");
    // The clock has moved on since.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let prune = PruneParams { older_than: Duration::ZERO, limit: 10 };
    unknown(store.prune(prune).await.unwrap_err());
    assert_eq!(store.prune(prune).await.unwrap().count, 0);
    assert_eq!(store.mutation(mutation("m").scope).await.unwrap(), None);

    lose_answer_of("publish");
    unknown(store.publish(vec![event(&stream, "two")]).await.unwrap_err());
    assert_eq!(read_all(&store, &stream).await.len(), 2);
    lose_answer_of("save_offsets");
    unknown(store.save_offsets(vec![save(&stream, 2)]).await.unwrap_err());
    assert_eq!(store.offset(stream.clone(), consumer()).await.unwrap(), 2);
    lose_answer_of("trim");
    let trim = TrimParams { stream: stream.clone(), horizon: 1, limit: 10 };
    unknown(store.trim(trim.clone()).await.unwrap_err());
    assert_eq!(store.trim(trim).await.unwrap().count, 0);

    lose_answer_of("compare_and_set");
    unknown(store.compare_and_set(vec![set("r", 1)]).await.unwrap_err());
    lose_answer_of("remove_records");
    unknown(store.compare_and_set(vec![unset("r", 2)]).await.unwrap_err());
    assert_eq!(store.get_record(key("r")).await.unwrap(), None);

    let (name, owner) = (LockName::new("l").unwrap(), OwnerName::new("me").unwrap());
    let wanted = TryLock { name: name.clone(), owner: owner.clone(), ttl: LEASE };
    lose_answer_of("try_lock");
    unknown(store.try_lock(wanted.clone()).await.unwrap_err());
    let held = store.try_lock(wanted).await.unwrap().unwrap();
    assert_eq!(held.generation, 1, "who repeats it gets the hold that it has");
    let hold = Hold { name: name.clone(), owner, generation: Some(1) };
    lose_answer_of("renew_lock");
    unknown(store.renew_lock(hold.clone(), 2 * LEASE).await.unwrap_err());
    assert!(store.get_lock(name).await.unwrap().unwrap().expires_at > held.expires_at);
    lose_answer_of("release_lock");
    unknown(store.release_lock(hold.clone()).await.unwrap_err());
    assert!(!store.release_lock(hold).await.unwrap());

    lose_answer_of("read_events");
    let read = ReadParams { stream, from: ReadFrom::Offset(0), limit: 1, bytes_max: 1 };
    let error = store.read(read).await.unwrap_err();
    assert!(matches!(error, StorageError::Unavailable { .. }), "a read changes nothing");
    assert_eq!(proxy.lost(), 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_is_told_when_something_may_have_been_missed() {
    let Some(served) = start().await else { return };
    let (store, other) = (served.open().await, served.open().await);
    let channel = ChannelName::new("c").unwrap();
    let topic = Topic::Channel(channel.clone());
    let mut wakes = store.listen(vec![topic.clone()]).await.unwrap();
    for _ in 0..5 {
        served.ask(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"));
        other.notify(vec![channel.clone()]).await.unwrap();
        let wake = tokio::time::timeout(LOST, wakes.next()).await.expect("a wake was lost");
        let wake = wake.unwrap();
        assert!(wake == Wake::Reconnected || wake == Wake::News(topic.clone()), "{wake:?}");
        // Who comes in between is heard, too.
        let mut late = store.listen(vec![topic.clone()]).await.unwrap();
        other.notify(vec![channel.clone()]).await.unwrap();
        tokio::time::timeout(LOST, late.next()).await.expect("a wake was lost").unwrap();
        drop(late);
        while wakes.next().await != Some(Wake::News(topic.clone())) {}
    }

    served.process(LocalServer::kill);
    while wakes_of_nobody(&store).await.is_ok() {}
    served.process(LocalServer::start_again).unwrap();
    let told = async { while wakes.next().await != Some(Wake::Reconnected) {} };
    tokio::time::timeout(LOST, told).await.expect("the new connection was not told of");
}

async fn wakes_of_nobody(store: &RedisStorage) -> rdq_spi::Result<()> {
    let topic = Topic::Channel(ChannelName::new("other").unwrap());
    match store.listen(vec![topic]).await {
        Ok(_) => Ok(()),
        Err(error @ StorageError::Unavailable { .. }) => Err(error),
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_takes_nothing_new_and_lets_the_rest_be_done() {
    let Some(served) = start().await else { return };
    let store = served.open().await;
    let (queue, stream) = (queue("q"), stream("s"));
    store.publish(vec![event(&stream, "one"), event(&stream, "two")]).await.unwrap();
    store.compare_and_set(vec![set("r", 0), set("kept", 0)]).await.unwrap();
    store.enqueue(vec![new_task("t", &queue)]).await.unwrap();
    store.commit(vec![Operation::Observe(mutation("known"))]).await.unwrap();
    let known = store.mutation(mutation("known").scope).await.unwrap().unwrap();
    let claims = claim_from(&store, &queue, LEASE).await.unwrap();
    served.ask(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1"));

    let is_full = |error: &StorageError| matches!(error, StorageError::Full { .. });
    assert!(is_full(&store.publish(vec![event(&stream, "three")]).await.unwrap_err()));
    assert!(is_full(&store.compare_and_set(vec![set("new", 0)]).await.unwrap_err()));
    let new = vec![
        Operation::Resolve(resolution(&claims[0], Call::Complete)),
        Operation::Publish(event(&stream, "three")),
    ];
    assert!(is_full(&store.commit(new).await.unwrap_err().error));
    let first = vec![Operation::Observe(mutation("new"))];
    assert!(is_full(&store.commit(first.clone()).await.unwrap_err().error));
    let again =
        vec![Operation::Observe(mutation("known")), Operation::Publish(event(&stream, "three"))];
    assert_eq!(observed_before(store.commit(again).await), known, "to repeat needs no space");

    let rest = vec![
        Operation::Resolve(resolution(&claims[0], Call::Complete)),
        Operation::SaveOffset(save(&stream, 1)),
        Operation::CompareAndSet(unset("kept", 1)),
    ];
    store.commit(rest).await.unwrap();
    store.save_offsets(vec![save(&stream, 2)]).await.unwrap();
    store.compare_and_set(vec![unset("r", 1)]).await.unwrap().remove(0).unwrap();
    let trim = TrimParams { stream: stream.clone(), horizon: 2, limit: 10 };
    assert_eq!(store.trim(trim).await.unwrap().count, 2);
    let prune = |older_than| store.prune(PruneParams { older_than, limit: 10 });
    assert_eq!(prune(Duration::MAX).await.unwrap().count, 0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(prune(Duration::ZERO).await.unwrap().count, 1);
    let owner = OwnerName::new("me").unwrap();
    let wanted = TryLock { name: LockName::new("l").unwrap(), owner, ttl: LEASE };
    assert!(store.try_lock(wanted).await.unwrap().is_some(), "maintenance makes room under one");
    store.notify(vec![ChannelName::new("c").unwrap()]).await.unwrap();

    served.ask(redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("0"));
    let next = store.publish(vec![event(&stream, "three")]).await.unwrap().remove(0).unwrap();
    assert_eq!(next, 3, "nothing of what was refused was done");
    store.commit(first).await.unwrap();
}

/// The tasks of a queue, which are few.
async fn list_all(store: &RedisStorage, queue: &QueueName) -> Vec<Task> {
    let params = ListParams {
        queue: queue.clone(),
        status: None,
        position: None,
        limit: 100,
        bytes_max: 1 << 20,
        include_attempts: true,
    };
    let page = store.list(params).await.unwrap();
    assert!(page.next.is_none(), "few");
    page.tasks
}

/// Two stores in which the same happens: once in commits, once one call after the other.
struct Twins {
    stores: [RedisStorage; 2],
    queues: [QueueName; 2],
    /// Of each task that was claimed, in either store.
    claims: [BTreeMap<TaskId, Claim>; 2],
}

/// An operation but for what differs between the stores: tokens.
#[derive(Debug, Clone)]
enum Step {
    Enqueue(NewTask),
    Cancel(TaskId),
    End(TaskId, Call, bool),
    Set(CompareAndSet),
    Publish(NewEvent),
    Save(SaveOffset),
}

impl Twins {
    fn operation(&self, twin: usize, step: &Step) -> Operation {
        match step.clone() {
            Step::Enqueue(task) => Operation::Enqueue(task),
            Step::Cancel(task) => Operation::Cancel(task),
            Step::End(task, call, forgets) => {
                let mut end: Resolution = resolution(&self.claims[twin][&task], call);
                if let Outcome::Succeed { forget, result, .. } = &mut end.outcome {
                    (*forget, *result) = (forgets, Bytes::from_static(b"done"));
                }
                Operation::Resolve(end)
            }
            Step::Set(change) => Operation::CompareAndSet(change),
            Step::Publish(event) => Operation::Publish(event),
            Step::Save(save) => Operation::SaveOffset(save),
        }
    }

    /// Calls of their own, up to the first that fails.
    async fn one_by_one(&self, steps: &[Step]) -> Result<Vec<Applied>, Rejected> {
        let store = &self.stores[1];
        let mut applied = Vec::new();
        for (index, step) in steps.iter().enumerate() {
            let answer = match self.operation(1, step) {
                Operation::Enqueue(task) => {
                    store.enqueue(vec![task]).await.unwrap().remove(0).map(Applied::Enqueued)
                }
                Operation::Cancel(task) => {
                    store.cancel(vec![task]).await.unwrap().remove(0).map(Applied::Cancelled)
                }
                Operation::Resolve(end) => {
                    store.resolve(vec![end]).await.unwrap().remove(0).map(Applied::Resolved)
                }
                Operation::CompareAndSet(change) => {
                    let answer = store.compare_and_set(vec![change]).await.unwrap().remove(0);
                    answer.map(Applied::Recorded)
                }
                Operation::Publish(event) => {
                    store.publish(vec![event]).await.unwrap().remove(0).map(Applied::Published)
                }
                Operation::SaveOffset(save) => {
                    let answer = store.save_offsets(vec![save]).await.unwrap().remove(0);
                    answer.map(Applied::OffsetSaved)
                }
                Operation::Notify(_) | Operation::Observe(_) => unreachable!("no step is one"),
            };
            applied.push(answer.map_err(|error| Rejected { index: Some(index), error })?);
        }
        Ok(applied)
    }

    /// What there is to see of a store but for instants.
    async fn seen(&self, twin: usize, streams: &[StreamName]) -> Vec<String> {
        let store = &self.stores[twin];
        let mut seen = Vec::new();
        for queue in &self.queues {
            for task in list_all(store, queue).await {
                let outcomes: Vec<_> = task.attempts.iter().map(|it| it.outcome).collect();
                let Task { id, status, attempt_count, result, .. } = task;
                seen.push(format!("{id} {status:?} {attempt_count} {outcomes:?} {result:?}"));
            }
            let stats = store.stats(queue.clone()).await.unwrap();
            let stats = QueueStats { oldest_pending_age: None, ..stats };
            seen.push(format!("{stats:?}"));
        }
        for stream in streams {
            let events = read_all(store, stream).await;
            let events: Vec<_> =
                events.into_iter().map(|event| (event.offset, event.payload)).collect();
            let saved = store.offset(stream.clone(), consumer()).await.unwrap();
            seen.push(format!("{events:?} {saved}"));
        }
        for name in ["r0", "r1"] {
            let record = store.get_record(key(name)).await.unwrap();
            seen.push(format!("{:?}", record.map(|it| it.revision)));
        }
        seen
    }
}

/// A step about one of these tasks, or about something else.
fn some_step(random: &mut Random, ids: &[TaskId], twins: &Twins) -> Step {
    let id = ids[random.below(ids.len())].clone();
    match random.below(11) {
        0..5 => {
            let queue = &twins.queues[usize::from(random.below(12) == 0)];
            let due = if random.below(4) == 0 { Moment::In(LEASE) } else { Moment::NOW };
            Step::Enqueue(NewTask { due, ..new_task(id.as_str(), queue) })
        }
        5 | 6 => Step::Cancel(id),
        7 | 8 if twins.claims[0].contains_key(&id) => {
            let calls =
                [Call::Complete, Call::Reschedule, Call::DeadLetter, Call::Fail, Call::Release];
            Step::End(id, calls[random.below(calls.len())], random.below(2) == 0)
        }
        9 => {
            let name = ["r0", "r1"][random.below(2)];
            let expected = i64::try_from(random.below(2)).unwrap();
            let removes = random.below(3) == 0;
            Step::Set(if removes { unset(name, expected) } else { set(name, expected) })
        }
        _ if random.below(2) == 0 => Step::Publish(event(&stream("s"), "x")),
        _ => Step::Save(save(&stream("s"), i64::try_from(random.below(9)).unwrap())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_does_what_its_calls_would_do_one_by_one_or_nothing() {
    let seed = Random::any_seed();
    eprintln!("seed {seed}");
    let mut random = Random::seeded(seed);
    let (mut commits, mut failures) = (0, 0);
    for _ in 0..ROUNDS {
        let (Some(one), Some(two)) = (start_quick().await, start_quick().await) else { return };
        let mut twins = Twins {
            stores: [one.open().await, two.open().await],
            queues: [queue("q"), queue("other")],
            claims: [BTreeMap::new(), BTreeMap::new()],
        };
        let mut ids: Vec<_> = (0..7).map(|n| TaskId::new(format!("t{n}")).unwrap()).collect();
        let streams = [stream("s")];
        for twin in 0..2 {
            let store = &twins.stores[twin];
            let tasks = ids.iter().map(|id| new_task(id.as_str(), &twins.queues[0]));
            store.enqueue(tasks.collect()).await.unwrap();
            let claims = claim_from(store, &twins.queues[0], LEASE).await.unwrap();
            twins.claims[twin] =
                claims.into_iter().map(|claim| (claim.task.id.clone(), claim)).collect();
        }
        assert!(twins.claims[0].keys().eq(twins.claims[1].keys()));
        let mut before = twins.seen(0, &streams).await;
        for round in 0..COMMITS_MAX {
            // Few tasks in one commit, so that its steps meet: two that are there, and a new one.
            let new = TaskId::new(format!("new{round}")).unwrap();
            let some = [random.below(7), random.below(ids.len())].map(|at| ids[at].clone());
            let met = [some.as_slice(), std::slice::from_ref(&new)].concat();
            ids.push(new);
            let count = 1 + random.below(7);
            let steps: Vec<_> = (0..count).map(|_| some_step(&mut random, &met, &twins)).collect();
            let operations = steps.iter().map(|step| twins.operation(0, step)).collect();
            let committed = twins.stores[0].commit(operations).await;
            let expected = twins.one_by_one(&steps).await;
            let after = twins.seen(0, &streams).await;
            match (committed, expected) {
                (Ok(committed), Ok(expected)) => {
                    let pairs = committed.iter().zip(&expected);
                    assert!(
                        committed.len() == expected.len()
                            && pairs.clone().all(|(a, b)| a.agrees(b)),
                        "{steps:?}: {committed:?}, not {expected:?}"
                    );
                    assert_eq!(after, twins.seen(1, &streams).await, "{steps:?}");
                    commits += 1;
                    before = after;
                }
                (Err(committed), Err(expected)) => {
                    assert_eq!(committed.index, expected.index, "{steps:?}: {committed:?}");
                    let kinds = [&committed.error, &expected.error].map(discriminant);
                    assert_eq!(kinds[0], kinds[1], "{steps:?}: {committed:?}, not {expected:?}");
                    assert_eq!(after, before, "{steps:?}: a part of it was done");
                    failures += 1;
                    // The other store has done a part.
                    break;
                }
                (committed, expected) => panic!("{steps:?}: {committed:?}, not {expected:?}"),
            }
        }
        assert_counted_and_handed_out(&twins.stores[0], &twins.queues).await;
    }
    assert!(commits > 0 && failures > 0, "{commits} {failures}");
}

/// The index says what the tasks do, and hands out each that is ready, once.
async fn assert_counted_and_handed_out(store: &RedisStorage, queues: &[QueueName]) {
    for queue in queues {
        let tasks = list_all(store, queue).await;
        let stats = store.stats(queue.clone()).await.unwrap();
        for (status, counted) in [
            (TaskStatus::Pending, stats.ready + stats.delayed),
            (TaskStatus::InFlight, stats.in_flight),
            (TaskStatus::Succeeded, stats.succeeded),
            (TaskStatus::Dead, stats.dead),
            (TaskStatus::Cancelled, stats.cancelled),
        ] {
            let count = tasks.iter().filter(|task| task.status == status).count();
            assert_eq!(counted, u64::try_from(count).unwrap(), "{status:?} {stats:?}");
        }
        let mut handed_out = BTreeSet::new();
        loop {
            let claims = claim_from(store, queue, LEASE).await.unwrap();
            if claims.is_empty() {
                break;
            }
            for claim in claims {
                assert!(handed_out.insert(claim.task.id), "each once");
            }
        }
        assert_eq!(u64::try_from(handed_out.len()).unwrap(), stats.ready);
    }
}
