//! Maintenance: one server's at a time where the storage has locks, and everybody hears what it did.
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

mod support;

use futures::StreamExt as _;
use rdq_engine::{Engine, EngineOptions, WorkStart};
use rdq_memory::MemoryStorage;
use rdq_spi::{LockName, Moment, NewTask, StaleDetail, Storage as _};
use std::sync::{Arc, atomic::Ordering};
use support::{
    enqueue, id, queue, secs,
    shell::{Shell, Trouble},
    task, worker,
};
use tokio::time::{sleep, timeout};

struct Server {
    engine: Engine,
    shell: Arc<Shell>,
}

impl Server {
    async fn start(memory: &MemoryStorage, masked: bool) -> Self {
        let shell = Arc::new(Shell::new(memory.clone(), masked, Trouble::none()));
        let options = EngineOptions { maintenance_interval: secs(10), ..EngineOptions::default() };
        let engine = Engine::start(shell.clone(), options).await.unwrap();
        Self { engine, shell }
    }

    /// Sweeps since this was asked the last time.
    fn sweeps(&self) -> usize {
        self.shell.sweep_calls.swap(0, Ordering::SeqCst)
    }
}

async fn is_led(memory: &MemoryStorage) -> bool {
    let lock = LockName::stored("__rdq_maintenance");
    memory.locks().unwrap().get_lock(lock).await.unwrap().is_some()
}

/// A store with something to sweep, and two servers of which the first leads.
async fn scene(masked: bool) -> (MemoryStorage, Server, Server) {
    let memory = MemoryStorage::new();
    let first = Server::start(&memory, masked).await;
    enqueue(&first.engine, task("t")).await;
    sleep(secs(13)).await;
    assert_eq!(first.sweeps(), 1);
    let second = Server::start(&memory, masked).await;
    (memory, first, second)
}

#[tokio::test(start_paused = true)]
async fn one_server_sweeps_and_the_next_does_once_it_leaves() {
    let (memory, first, second) = scene(false).await;
    sleep(secs(100)).await;
    assert!(first.sweeps() >= 8, "it goes on at every time of its own");
    assert_eq!(second.sweeps(), 0);
    assert!(is_led(&memory).await);
    first.engine.drain().await;
    assert!(!is_led(&memory).await);
    sleep(secs(13)).await;
    assert!(second.sweeps() >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_cut_off_is_replaced() {
    let (_memory, first, second) = scene(false).await;
    first.shell.cause(Trouble::seeded(1, 0, 1_000, 0));
    sleep(secs(40)).await;
    assert!(second.sweeps() >= 1);
    first.shell.cause(Trouble::none());
    first.sweeps();
    sleep(secs(100)).await;
    assert_eq!(first.sweeps(), 0, "it stands by");
    assert!(second.sweeps() >= 8);
}

#[tokio::test(start_paused = true)]
async fn without_locks_every_server_sweeps() {
    let (_memory, first, second) = scene(true).await;
    sleep(secs(100)).await;
    assert!(first.sweeps() >= 8 && second.sweeps() >= 8);
}

#[tokio::test(start_paused = true)]
async fn a_stream_hears_what_expired_whichever_server_swept() {
    let (_memory, _first, second) = scene(false).await;
    let expires = Some(Moment::In(secs(20)));
    enqueue(&second.engine, NewTask { queue: queue("r"), expires, ..task("expires") }).await;
    let later = Some(Moment::In(secs(3_600)));
    enqueue(&second.engine, NewTask { queue: queue("r"), expires: later, ..task("later") }).await;
    let start =
        WorkStart { queues: vec![queue("r")], lease: Some(secs(300)), worker_id: worker("w") };
    let (handle, mut events) = second.engine.work(start).unwrap();
    handle.credit(10);
    let (mut tasks, mut lost) = (0, Vec::new());
    let told = async {
        while lost.is_empty() {
            let event = events.next().await.unwrap().unwrap();
            tasks += event.tasks.len();
            lost = event.lost;
        }
    };
    timeout(secs(60), told).await.unwrap();
    assert_eq!((tasks, lost.len()), (2, 1));
    assert_eq!((&lost[0].id, lost[0].detail), (&id("expires"), StaleDetail::Expired));
    assert_eq!(second.sweeps(), 0, "the other one swept");
}
