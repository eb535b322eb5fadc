//! Schedules over paused time: every boundary gives one task, whoever runs them and whoever dies.
//!
//! `RDQ_SEED=n` replays one story of the last test, `RDQ_SEEDS=n` tells how many are told.
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

mod support;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use rdq_engine::{
    BoundaryTask, Engine, EngineError, EngineOptions, ListSchedulesRequest, RunSchedulesError,
    Schedule, ScheduleDefinition,
};
use rdq_memory::MemoryStorage;
use rdq_spi::{
    Limits, ListParams, NewTask, Position, QueueConfig, RecordKey, RecordName, RecordSpace,
    ScheduleName, Storage as _, StorageError, Task, TaskStatus, Timestamp,
};
use sha2::{Digest as _, Sha256};
use std::{env, pin::pin, sync::Arc, sync::atomic::Ordering, time::Duration};
use support::{
    id, queue, scene, secs,
    shell::{Shell, Trouble},
    submission, task,
};
use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// A server that runs schedules as the daemon does: again and again, whatever ends it.
struct Server {
    engine: Engine,
    shell: Arc<Shell>,
    runner: JoinHandle<()>,
}

impl Server {
    async fn start(memory: &MemoryStorage) -> Self {
        let shell = Arc::new(Shell::new(memory.clone(), false, Trouble::none()));
        let engine = Engine::start(shell.clone(), EngineOptions::default()).await.unwrap();
        let runner = tokio::spawn(run(engine.clone()));
        Self { engine, shell, runner }
    }

    /// As if the process died: nothing is released.
    async fn kill(self) {
        self.runner.abort();
        assert!(self.runner.await.unwrap_err().is_cancelled());
    }
}

async fn run(engine: Engine) {
    loop {
        match engine.run_schedules(envelope, CancellationToken::new()).await {
            Ok(()) => return,
            Err(RunSchedulesError::LeadershipLost) => {}
            Err(RunSchedulesError::Engine(_)) => sleep(Duration::from_millis(700)).await,
        }
    }
}

/// The headers, and the id.
#[allow(clippy::needless_pass_by_value, reason = "the signature that the engine asks for")]
fn envelope(task: BoundaryTask<'_>) -> Bytes {
    let headers = task.headers.iter().map(|(key, value)| format!("{key}={value}\n"));
    [task.id.as_str().to_owned() + "\n"].into_iter().chain(headers).collect::<String>().into()
}

fn named(name: &str) -> ScheduleName {
    ScheduleName::new(name).unwrap()
}

/// A schedule whose tasks go to the queue of its name.
fn schedule(name: &str, spec: &str) -> ScheduleDefinition {
    ScheduleDefinition {
        name: named(name),
        spec: spec.into(),
        time_zone: String::new(),
        queue: queue(name),
        handler_ref: queue("handler"),
        payload: Bytes::from_static(b"payload"),
        headers: [("mine".to_owned(), "yes".to_owned())].into(),
        priority: 7,
        max_attempts: Some(3),
        expires_in: None,
        paused: false,
    }
}

async fn put(engine: &Engine, definition: ScheduleDefinition) -> Schedule {
    engine.put_schedule(definition).await.unwrap().0
}

/// The tasks of a queue.
async fn tasks(memory: &MemoryStorage, name: &str) -> Vec<Task> {
    let (mut tasks, mut position): (Vec<Task>, Option<Position>) = (Vec::new(), None);
    loop {
        let page = memory.list(ListParams {
            queue: queue(name),
            status: None,
            position,
            limit: 1_000,
            bytes_max: usize::MAX,
            include_attempts: false,
        });
        let page = page.await.unwrap();
        tasks.extend(page.tasks);
        position = page.next;
        if position.is_none() {
            return tasks;
        }
    }
}

/// The boundaries that gave a task to a queue, in their order, one for each task.
async fn fired(memory: &MemoryStorage, name: &str) -> Vec<i64> {
    let mut fired: Vec<_> = tasks(memory, name)
        .await
        .into_iter()
        .map(|task| task.next_attempt_at.unwrap().millis())
        .collect();
    fired.sort_unstable();
    fired
}

/// The boundaries of an interval from when it began to some instant, that one among them.
fn expected(from: Timestamp, every: u64, to: Timestamp) -> Vec<i64> {
    let every = usize::try_from(every).unwrap() * 1_000;
    (from.millis()..=to.millis()).step_by(every).skip(1).collect()
}

/// Every boundary so far gave one task.
async fn assert_all_fired(memory: &MemoryStorage, name: &str, from: Timestamp, every: u64) {
    let to = now(memory).await;
    // One that came just now may be on its way.
    sleep(Duration::from_millis(500)).await;
    let mut fired = fired(memory, name).await;
    fired.retain(|boundary| *boundary <= to.millis());
    assert_eq!(fired, expected(from, every, to), "{name}");
}

async fn now(memory: &MemoryStorage) -> Timestamp {
    memory.now().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_boundary_gives_a_task_as_the_schedule_says() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let definition =
        ScheduleDefinition { expires_in: Some(secs(90)), ..schedule("tick", "@every 10s") };
    let (made, created) = server.engine.put_schedule(definition.clone()).await.unwrap();
    assert!(created);
    assert_eq!(made.definition, definition);
    let boundary = made.created_at.after(secs(10));
    assert_eq!((made.next_boundary_at, made.last_boundary_at), (Some(boundary), None));

    sleep(Duration::from_millis(9_900)).await;
    assert!(tasks(&memory, "tick").await.is_empty(), "not before its time");
    sleep(Duration::from_millis(200)).await;
    let task = tasks(&memory, "tick").await.remove(0);
    assert_eq!(task.status, TaskStatus::Pending);
    assert_eq!((task.priority, task.overrides.max_attempts), (7, Some(3)));
    assert_eq!(task.handler_ref, queue("handler"));
    assert_eq!(task.next_attempt_at, Some(boundary));
    assert_eq!(task.expires_at, Some(boundary.after(secs(90))));
    let written = String::from_utf8(task.envelope.to_vec()).unwrap();
    let lines: Vec<_> = written.lines().collect();
    assert_eq!(lines[..3], [task.id.as_str(), "mine=yes", "rdq.schedule=tick"]);
    let at = lines[3].strip_prefix("rdq.scheduled_for=").unwrap();
    let at: jiff::Timestamp = at.parse().unwrap();
    assert_eq!(at.as_millisecond(), boundary.millis());

    let page = server.engine.list_schedules(list(10, "")).await.unwrap();
    assert_eq!(page.schedules[0].last_boundary_at, Some(boundary));
    assert_eq!(page.schedules[0].next_boundary_at, Some(boundary.after(secs(10))));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_put_is_heard_of_at_once() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    sleep(secs(1)).await;
    let made = put(&server.engine, schedule("tick", "@every 1s")).await;
    sleep(Duration::from_millis(1_001)).await;
    assert_all_fired(&memory, "tick", made.created_at, 1).await;
}

#[tokio::test(start_paused = true)]
async fn two_runners_at_once_give_each_boundary_one_task() {
    let memory = MemoryStorage::new();
    let servers = [Server::start(&memory).await, Server::start(&memory).await];
    for server in &servers {
        server.shell.lying_locks.store(true, Ordering::SeqCst);
        // They overtake each other.
        server.shell.cause(Trouble::seeded(fastrand::u64(..), 300, 0, 0));
    }
    sleep(secs(5)).await;
    let names = [("one", 1), ("two", 2), ("seven", 7)];
    let mut from = Vec::new();
    for (name, every) in names {
        let made = put(&servers[0].engine, schedule(name, &format!("@every {every}s"))).await;
        from.push(made.created_at);
    }
    sleep(secs(120)).await;
    let calls = servers.each_ref().map(|server| server.shell.commits.load(Ordering::SeqCst));
    assert!(calls.iter().all(|calls| *calls > 60), "both ran: {calls:?}");
    for server in servers {
        server.kill().await;
    }
    let to = now(&memory).await;
    for ((name, every), from) in names.into_iter().zip(from) {
        // The last one may not have been there in time.
        let fired = fired(&memory, name).await;
        let expected = expected(from, every, to);
        assert!(expected.len() - fired.len() <= 1, "{name}: {} of {}", fired.len(), expected.len());
        assert_eq!(fired[..], expected[..fired.len()], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_replaced_and_no_boundary_is_missed() {
    let memory = MemoryStorage::new();
    let mut leader = Server::start(&memory).await;
    sleep(secs(1)).await;
    let made = put(&leader.engine, schedule("tick", "@every 1s")).await;
    for _ in 0..3 {
        let other = Server::start(&memory).await;
        sleep(secs(20)).await;
        std::mem::replace(&mut leader, other).kill().await;
    }
    sleep(secs(20)).await;
    assert_all_fired(&memory, "tick", made.created_at, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_for_too_long_stops() {
    let memory = MemoryStorage::new();
    let shell = Arc::new(Shell::new(memory.clone(), false, Trouble::none()));
    let engine = Engine::start(shell, EngineOptions::default()).await.unwrap();
    let made = put(&engine, schedule("tick", "@every 1s")).await;
    let mut still = pin!(engine.run_schedules(envelope, CancellationToken::new()));
    assert!(timeout(secs(5), &mut still).await.is_err(), "it leads");
    let other = Server::start(&memory).await;
    // Nobody polls the first one.
    sleep(secs(30)).await;
    let ended = timeout(secs(1), still).await.unwrap();
    assert!(matches!(ended, Err(RunSchedulesError::LeadershipLost)), "{ended:?}");
    sleep(secs(10)).await;
    assert_all_fired(&memory, "tick", made.created_at, 1).await;
    other.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_leaves_the_schedules_to_the_next() {
    let memory = MemoryStorage::new();
    let first = Server::start(&memory).await;
    let made = put(&first.engine, schedule("tick", "@every 1s")).await;
    sleep(secs(3)).await;
    let second = Server::start(&memory).await;
    sleep(secs(3)).await;
    first.engine.drain().await;
    timeout(secs(1), first.runner).await.unwrap().unwrap();
    assert_eq!(
        memory
            .locks()
            .unwrap()
            .get_lock(rdq_spi::LockName::stored("__rdq_scheduler"))
            .await
            .unwrap(),
        None
    );
    // Less than the lock's time to live.
    sleep(secs(5)).await;
    assert_all_fired(&memory, "tick", made.created_at, 1).await;

    let stop = CancellationToken::new();
    stop.cancel();
    second.engine.run_schedules(envelope, stop).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_downtime_64_boundaries_are_caught_up_and_then_it_skips_forward() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let made = put(&server.engine, schedule("tick", "@every 1m")).await;
    let large =
        ScheduleDefinition { payload: vec![0; 1 << 20].into(), ..schedule("large", "@every 1m") };
    put(&server.engine, large).await;
    let daily = put(&server.engine, schedule("daily", "@daily")).await;
    server.kill().await;
    sleep(secs(86_400)).await;

    let back = now(&memory).await;
    let server = Server::start(&memory).await;
    sleep(secs(20)).await;
    let mut all = expected(made.created_at, 60, back);
    all.truncate(64);
    assert_eq!(fired(&memory, "tick").await, all);
    assert_eq!(fired(&memory, "large").await.len(), 64, "in more commits than one");
    assert_eq!(fired(&memory, "daily").await, [daily.next_boundary_at.unwrap().millis()]);
    sleep(secs(180)).await;
    let to = now(&memory).await;
    sleep(secs(1)).await;
    let resumed = fired(&memory, "tick").await.split_off(64);
    let later: Vec<_> =
        expected(made.created_at, 60, to).into_iter().filter(|at| *at > back.millis()).collect();
    assert_eq!(resumed, later, "and goes on from where it is");
    server.kill().await;
}

#[tokio::test(start_paused = true)]
async fn what_passes_while_paused_is_not_caught_up() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let engine = &server.engine;
    let made = put(engine, schedule("tick", "@every 10s")).await;
    sleep(secs(25)).await;
    let paused = engine.pause_schedule(named("tick"), true).await.unwrap();
    assert_eq!((paused.definition.paused, paused.next_boundary_at), (true, None));
    assert_eq!(engine.pause_schedule(named("tick"), true).await.unwrap(), paused);
    sleep(secs(1_000)).await;
    assert_eq!(fired(&memory, "tick").await.len(), 2);
    let resumed = engine.pause_schedule(named("tick"), false).await.unwrap();
    assert_eq!(engine.pause_schedule(named("tick"), false).await.unwrap(), resumed);
    let next = resumed.next_boundary_at.unwrap();
    let since = next.since(made.created_at);
    assert_eq!(since.as_millis() % 10_000, 0, "its boundaries stay where they were");
    assert!(next > now(&memory).await && next <= now(&memory).await.after(secs(10)));
    sleep(secs(10)).await;
    assert_eq!(fired(&memory, "tick").await[2..], [next.millis()]);

    // The same by a put.
    let (put_paused, created) = engine
        .put_schedule(ScheduleDefinition { paused: true, ..schedule("tick", "@every 10s") })
        .await
        .unwrap();
    assert_eq!((created, put_paused.next_boundary_at), (false, None));
    sleep(secs(100)).await;
    let go_on = put(engine, schedule("tick", "@every 10s")).await;
    assert!(go_on.next_boundary_at.unwrap() > now(&memory).await);
    assert_eq!(fired(&memory, "tick").await.len(), 3);
    let error = engine.pause_schedule(named("other"), true).await.unwrap_err();
    assert!(matches!(error, EngineError::ScheduleNotFound { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_spec_keeps_its_next_boundary_and_a_changed_one_starts_from_now() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let engine = &server.engine;
    let made = put(engine, schedule("tick", "@every 1h")).await;
    sleep(secs(1_000)).await;
    let (same, created) = engine
        .put_schedule(ScheduleDefinition { priority: 1, ..schedule("tick", "@every 1h") })
        .await
        .unwrap();
    assert!(!created);
    assert_eq!((same.next_boundary_at, same.created_at), (made.next_boundary_at, made.created_at));
    assert_eq!(same.definition.priority, 1);
    let changed = put(engine, schedule("tick", "@every 30m")).await;
    assert_eq!(changed.next_boundary_at, Some(now(&memory).await.after(secs(1_800))));
    assert_eq!(changed.created_at, made.created_at);
    sleep(secs(1_000)).await;
    let zoned =
        ScheduleDefinition { time_zone: "Europe/Berlin".into(), ..schedule("tick", "@every 30m") };
    let zoned = put(engine, zoned).await;
    assert_eq!(zoned.next_boundary_at, Some(now(&memory).await.after(secs(1_800))));
    sleep(secs(1_801)).await;
    assert_eq!(fired(&memory, "tick").await, [zoned.next_boundary_at.unwrap().millis()]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_schedule_gives_nothing_any_more_and_a_new_one_of_its_name_is_another() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    server.shell.cause(Trouble::seeded(fastrand::u64(..), 300, 0, 0));
    let engine = server.engine.clone();
    for round in 0..30 {
        let made = put(&engine, schedule("tick", "@every 1s")).await;
        assert_eq!(made.last_boundary_at, None, "round {round}");
        // Around a boundary.
        sleep(Duration::from_millis(900 + fastrand::u64(0..300))).await;
        assert!(engine.delete_schedule(named("tick")).await.unwrap());
        let had = fired(&memory, "tick").await;
        assert!(!engine.delete_schedule(named("tick")).await.unwrap());
        sleep(secs(3)).await;
        assert_eq!(fired(&memory, "tick").await, had, "round {round}");
    }
    assert!(!fired(&memory, "tick").await.is_empty());
    assert!(engine.list_schedules(list(10, "")).await.unwrap().schedules.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_refuses_costs_its_boundaries_and_nobody_elses() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let engine = &server.engine;
    put(engine, schedule("tick", "@every 10s")).await;
    put(engine, schedule("other", "@every 10s")).await;
    let limit = |bytes| QueueConfig {
        limits: Limits { max_payload_bytes: Some(bytes) },
        ..QueueConfig::default()
    };
    engine.put_queue(queue("tick"), limit(3)).await.unwrap();
    sleep(secs(35)).await;
    assert_eq!(fired(&memory, "tick").await.len(), 0);
    assert_eq!(fired(&memory, "other").await.len(), 3);
    let error = engine.put_schedule(schedule("tick", "@every 10s")).await.unwrap_err();
    let EngineError::PayloadTooLarge { field, limit_bytes: 3, size_bytes: 7 } = error else {
        panic!("{error:?}");
    };
    assert_eq!(field, "schedule.payload");
    engine.put_queue(queue("tick"), limit(1_000)).await.unwrap();
    sleep(secs(20)).await;
    assert_eq!(fired(&memory, "tick").await.len(), 2, "what was refused is not caught up");
}

#[tokio::test(start_paused = true)]
async fn an_id_that_somebody_took_in_another_queue_costs_that_boundary_alone() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let made = put(&server.engine, schedule("tick", "@every 10s")).await;
    let key = RecordKey { space: RecordSpace::Schedules, name: RecordName::stored("tick") };
    let record = memory.records().unwrap().get_record(key).await.unwrap().unwrap();
    let (head, _) = record.value[5..].split_at(record.value.len() - 5 - b"payload".len());
    let head: serde_json::Value = serde_json::from_slice(head).unwrap();
    let salt = head["salt"].as_str().unwrap();
    let boundary = made.next_boundary_at.unwrap().millis();
    let digest = Sha256::new()
        .chain_update(boundary.to_be_bytes())
        .chain_update((salt.len() as u64).to_be_bytes())
        .chain_update(salt)
        .chain_update("tick");
    let digest = URL_SAFE_NO_PAD.encode(&digest.finalize()[..16]);
    let taken = NewTask { id: id(format!("sched:{digest}:{boundary}")), ..task("x") };
    server.engine.enqueue(submission(taken)).await.unwrap();
    sleep(secs(35)).await;
    let fired = fired(&memory, "tick").await;
    assert_eq!(fired[..], expected(made.created_at, 10, now(&memory).await)[1..]);
}

#[tokio::test(start_paused = true)]
async fn a_storage_that_fails_for_a_while_delays_boundaries_and_loses_none() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let made = put(&server.engine, schedule("tick", "@every 1s")).await;
    sleep(Duration::from_millis(5_500)).await;
    server.shell.cause(Trouble::seeded(1, 0, 1_000, 0));
    sleep(secs(40)).await;
    assert_eq!(fired(&memory, "tick").await.len(), 5);
    server.shell.cause(Trouble::none());
    sleep(secs(15)).await;
    assert_all_fired(&memory, "tick", made.created_at, 1).await;
    // Every answer is lost, and still each boundary gives one task.
    server.shell.cause(Trouble::seeded(2, 0, 0, 500));
    sleep(secs(30)).await;
    server.shell.cause(Trouble::none());
    sleep(secs(15)).await;
    assert_all_fired(&memory, "tick", made.created_at, 1).await;
    assert!(server.shell.lost_answers.load(Ordering::SeqCst) > 3);
}

fn list(page_size: u32, page_token: &str) -> ListSchedulesRequest {
    ListSchedulesRequest { page_size, page_token: page_token.into(), subject: "me".into() }
}

#[tokio::test(start_paused = true)]
async fn schedules_are_listed_by_name_in_pages_that_are_their_callers() {
    let memory = MemoryStorage::new();
    let server = Server::start(&memory).await;
    let engine = &server.engine;
    for name in ["c", "a", "e", "b", "d"] {
        put(engine, schedule(name, "@daily")).await;
    }
    let (mut names, mut token) = (Vec::new(), String::new());
    loop {
        let page = engine.list_schedules(list(2, &token)).await.unwrap();
        names.extend(page.schedules.into_iter().map(|schedule| schedule.definition.name));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
        put(engine, schedule("bb", "@daily")).await;
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"].map(named));
    assert!(engine.list_schedules(list(0, "")).await.unwrap().schedules.is_empty());
    let token = engine.list_schedules(list(1, "")).await.unwrap().next_page_token;
    let stranger = ListSchedulesRequest { subject: "you".into(), ..list(1, &token) };
    let error = engine.list_schedules(stranger).await.unwrap_err();
    assert!(matches!(error, EngineError::CursorBindingMismatch), "{error:?}");
    let error = engine.list_schedules(list(1, "x")).await.unwrap_err();
    assert!(matches!(error, EngineError::InvalidCursor), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_refused_and_nothing_is_stored() {
    let memory = MemoryStorage::new();
    let options = EngineOptions { require_declared_queues: true, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(memory.clone()), options).await.unwrap();
    let error = engine.put_schedule(schedule("q", "@daily")).await.unwrap_err();
    assert!(matches!(error, EngineError::QueueNotFound { .. }), "{error:?}");
    engine.put_queue(queue("q"), QueueConfig::default()).await.unwrap();
    let good = || schedule("q", "@daily");
    for (definition, expected) in [
        (ScheduleDefinition { spec: "0 0 30 2 *".into(), ..good() }, "schedule.spec"),
        (ScheduleDefinition { spec: "@every 0s".into(), paused: true, ..good() }, "schedule.spec"),
        (ScheduleDefinition { time_zone: "Mars".into(), ..good() }, "schedule.time_zone"),
        (ScheduleDefinition { max_attempts: Some(0), ..good() }, "schedule.max_attempts"),
    ] {
        match engine.put_schedule(definition).await.unwrap_err() {
            EngineError::InvalidSpec { field, .. } | EngineError::InvalidArgument { field, .. } => {
                assert_eq!(field, expected);
            }
            error => panic!("{expected}: {error:?}"),
        }
    }
    assert!(engine.list_schedules(list(10, "")).await.unwrap().schedules.is_empty());

    let scene = scene(true, EngineOptions::default()).await;
    assert!(!scene.engine.has_schedules());
    let error = scene.engine.put_schedule(schedule("q", "@daily")).await.unwrap_err();
    let is_unsupported = |error: &EngineError| matches!(error, EngineError::Storage(e) if matches!(**e, StorageError::Unsupported { .. }));
    assert!(is_unsupported(&error), "{error:?}");
    let ended = scene.engine.run_schedules(envelope, CancellationToken::new()).await.unwrap_err();
    let RunSchedulesError::Engine(error) = ended else { panic!("{ended:?}") };
    assert!(is_unsupported(&error), "{error:?}");
}

/// One story: servers come, stand still, die, drain and have bad storages, while schedules tick.
async fn story(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let memory = MemoryStorage::new();
    let mut servers = vec![Server::start(&memory).await];
    let names = [("a", 1), ("b", 2), ("c", 5), ("d", 3)];
    let mut from = Vec::new();
    for (name, every) in names {
        let made = put(&servers[0].engine, schedule(name, &format!("@every {every}s"))).await;
        from.push(made.created_at);
        sleep(Duration::from_millis(rng.u64(0..1_500))).await;
    }
    // Never so long without a runner that more than 64 boundaries pass.
    for _ in 0..rng.usize(5..15) {
        sleep(Duration::from_millis(rng.u64(0..6_000))).await;
        match rng.u8(0..6) {
            0 | 1 => servers.push(Server::start(&memory).await),
            2 if servers.len() > 1 => servers.swap_remove(rng.usize(0..servers.len())).kill().await,
            3 if servers.len() > 1 => {
                let server = servers.swap_remove(rng.usize(0..servers.len()));
                server.engine.drain().await;
                server.runner.await.unwrap();
            }
            4 => {
                let server = rng.choice(&servers).unwrap();
                server.shell.cause(Trouble::seeded(rng.u64(..), 200, 100, 100));
            }
            _ => rng.choice(&servers).unwrap().shell.cause(Trouble::none()),
        }
    }
    for server in &servers {
        server.shell.cause(Trouble::none());
    }
    sleep(secs(25)).await;
    for ((name, every), from) in names.into_iter().zip(from) {
        assert_all_fired(&memory, name, from, every).await;
    }
    for server in servers {
        server.engine.drain().await;
    }
}

#[test]
fn whoever_dies_each_boundary_gives_one_task() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = fastrand::u64(..u64::MAX / 2);
    let some = || (first..first + number("RDQ_SEEDS").unwrap_or(30)).collect();
    let seeds = number("RDQ_SEED").map_or_else(some, |seed| vec![seed]);
    for seed in seeds {
        fastrand::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(story(seed));
        }));
        if let Err(panic) = told {
            eprintln!("the story of RDQ_SEED={seed} broke a promise");
            std::panic::resume_unwind(panic);
        }
    }
}
