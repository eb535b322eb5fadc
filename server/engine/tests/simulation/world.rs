//! One story: a store, servers on it, those who use them, and the end, when everything heals and
//! every task must have ended.

use crate::{
    actors,
    history::{History, Path, reached},
    support::{
        claim_request, complete, millis, queue, secs,
        shell::{Shell, Trouble},
        worker,
    },
};
use futures::StreamExt as _;
use rdq_engine::{ClaimedTask, Engine, EngineOptions, FollowRequest, WorkStart};
use rdq_memory::MemoryStorage;
use rdq_spi::{QueueConfig, Storage as _, Task};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};
use tokio::{
    task::{JoinHandle, LocalSet, spawn_local},
    time::{sleep, timeout},
};

/// What all actors of a story share.
pub struct World {
    pub memory: MemoryStorage,
    pub servers: Vec<RefCell<Server>>,
    pub history: History,
    /// Actors leave.
    pub over: Cell<bool>,
    /// What must end without a broken promise.
    running: RefCell<Vec<JoinHandle<()>>>,
}

pub struct Server {
    pub engine: Engine,
    shell: Arc<Shell>,
}

impl World {
    pub fn spawn(&self, actor: impl Future<Output = ()> + 'static) {
        self.running.borrow_mut().push(spawn_local(actor));
    }

    /// Waits for everything that was spawned; a panic within goes on here.
    async fn join(&self) {
        loop {
            let Some(running) = self.running.borrow_mut().pop() else { return };
            running.await.unwrap();
        }
    }

    pub fn engine(&self, rng: &mut fastrand::Rng) -> Engine {
        self.servers[rng.usize(0..self.servers.len())].borrow().engine.clone()
    }

    /// A server on the same store, perhaps with fewer faculties, and with its own troubles.
    pub async fn serve(memory: &MemoryStorage, rng: &mut fastrand::Rng) -> Server {
        let masked = rng.u8(0..4) == 0;
        if masked {
            reached(Path::Masked);
        }
        let shell = Arc::new(Shell::new(memory.clone(), masked, Trouble::none()));
        let options = EngineOptions {
            maintenance_interval: secs(5),
            keep_alive: secs(3),
            poll_interval: millis(400),
            ..EngineOptions::default()
        };
        let engine = Engine::start(shell.clone(), options).await.unwrap();
        if rng.bool() {
            shell.cause(Trouble::seeded(rng.u64(..), 100, 30, 30));
        }
        Server { engine, shell }
    }
}

pub async fn story(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let memory = MemoryStorage::new();
    let mut servers = Vec::new();
    for _ in 0..rng.usize(1..=3) {
        servers.push(RefCell::new(World::serve(&memory, &mut rng).await));
    }
    let mut config = QueueConfig::default();
    config.execution.lease = Some(secs(2));
    config.execution.strict_leases = Some(rng.u8(0..4) == 0);
    config.retry.initial_backoff = Some(millis(200));
    config.retry.max_backoff = Some(secs(2));
    config.classification.permanent = vec!["fatal*".into()];
    memory.put_queue(queue("q"), config).await.unwrap();
    let (history, over) = (History::default(), Cell::new(false));
    let world = Rc::new(World { memory, servers, history, over, running: RefCell::default() });
    let acting = async {
        let mut fork = || rng.fork();
        for name in 0..2 {
            world.spawn(actors::producer(Rc::clone(&world), fork(), name));
            world.spawn(actors::caller(Rc::clone(&world), fork()));
        }
        world.spawn(actors::follower(Rc::clone(&world), fork()));
        world.spawn(actors::streamer(Rc::clone(&world), fork()));
        world.spawn(actors::operator(Rc::clone(&world), fork()));
        sleep(secs(20)).await;
        world.over.set(true);
        world.join().await;
    };
    LocalSet::new().run_until(acting).await;
    heal(&world).await;
    let way = rng.u8(0..3);
    finish(&world, way).await;
}

async fn heal(world: &World) {
    for server in &world.servers {
        server.borrow().shell.cause(Trouble::none());
    }
    let server = world.servers[0].borrow().engine.clone();
    server.pause_queue(queue("q"), false).await.unwrap();
    sleep(secs(2)).await;
}

/// Good workers finish what is left, by one of the three ways to receive work; then every task must
/// have ended.
async fn finish(world: &World, way: u8) {
    let engine = world.servers[0].borrow().engine.clone();
    let work = async {
        match way {
            0 => finish_by_calls(world, &engine).await,
            1 => finish_by_subscription(world, &engine).await,
            _ => finish_by_stream(world, &engine).await,
        }
    };
    // Nothing is due later than in a few seconds.
    timeout(secs(60), work).await.expect("what was due was not handed out");
    for id in world.history.acknowledged() {
        let task: Task = world.memory.get(id).await.expect("an acknowledged task is lost");
        assert!(task.status.is_terminal(), "this task never ended: {task:#?}");
        world.history.check_end(&task);
    }
    for server in &world.servers {
        let engine = server.borrow().engine.clone();
        engine.drain().await;
    }
    let stats = world.memory.stats(queue("q")).await.unwrap();
    assert_eq!((stats.in_flight, stats.ready), (0, 0), "something was left behind");
}

async fn all_ended(world: &World) -> bool {
    let stats = world.memory.stats(queue("q")).await.unwrap();
    stats.ready + stats.delayed + stats.in_flight == 0
}

async fn finish_by_calls(world: &World, engine: &Engine) {
    while !all_ended(world).await {
        for claim in engine.claim(claim_request(50)).await.unwrap() {
            complete_well(world, engine, &claim).await;
        }
        sleep(millis(300)).await;
    }
}

async fn finish_by_subscription(world: &World, engine: &Engine) {
    let request = FollowRequest { claim: claim_request(3), max_in_flight: 4 };
    let mut subscription = engine.follow(request).unwrap();
    while !all_ended(world).await {
        if let Ok(claims) = timeout(millis(300), subscription.next()).await {
            for claim in claims.unwrap().unwrap() {
                complete_well(world, engine, &claim).await;
            }
        }
    }
}

async fn finish_by_stream(world: &World, engine: &Engine) {
    let (lease, worker_id) = (None, worker("good"));
    let start = WorkStart { queues: vec![queue("q")], lease, worker_id };
    let (handle, mut events) = engine.work(start).unwrap();
    handle.credit(2);
    while !all_ended(world).await {
        if let Ok(event) = timeout(millis(300), events.next()).await {
            for claim in event.unwrap().unwrap().tasks {
                complete_well(world, engine, &claim).await;
                handle.credit(1);
            }
        }
    }
}

async fn complete_well(world: &World, engine: &Engine, claim: &ClaimedTask) {
    world.history.granted(claim);
    let sent = world.history.sends(claim, true, true);
    let answer = engine.resolve(complete(claim)).await;
    let replayed = answer.as_ref().is_ok_and(|done| done.replayed);
    world.history.answered(&sent, &answer, replayed);
}
