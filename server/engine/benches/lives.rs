//! Whole lives a second through the engine alone, on memory: batches in, one work stream out. What
//! the service adds on top shows in `rdq bench`; what the storage takes, in its own bench.
#![allow(clippy::unwrap_used, reason = "a benchmark that fails stops")]

use bytes::Bytes;
use futures::StreamExt as _;
use rdq_engine::{Action, Engine, EngineOptions, ResolveRequest, Submission, WorkStart};
use rdq_memory::MemoryStorage;
use rdq_spi::{
    AttemptReport, Moment, NewTask, Overrides, QueueConfig, QueueName, TaskId, WorkerId,
};
use std::{sync::Arc, time::Duration};

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TASKS: usize = 400_000;
const BATCH: usize = 500;
const CREDITS: u32 = 2_000;

fn task(n: usize) -> Submission {
    let queue = QueueName::new("q").unwrap();
    let task = NewTask {
        id: TaskId::new(format!("01J0000000000000{n:010}")).unwrap(),
        handler_ref: queue.clone(),
        queue,
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from_static(&[7; 140]),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    };
    Submission { task, payload_bytes: 100 }
}

async fn produce(engine: Engine) {
    for first in (0..TASKS).step_by(BATCH) {
        let tasks = (first..first + BATCH).map(task).collect();
        assert!(engine.enqueue_batch(tasks).await.iter().all(Result::is_ok));
    }
}

async fn work(engine: Engine) {
    let queues = vec![QueueName::new("q").unwrap()];
    let worker_id = WorkerId::new("bench").unwrap();
    let (handle, mut events) = engine.work(WorkStart { queues, lease: None, worker_id }).unwrap();
    handle.credit(CREDITS);
    let mut done = 0;
    while done < TASKS {
        let event = events.next().await.unwrap().unwrap();
        done += event.outcome_acks.len();
        if event.tasks.is_empty() {
            continue;
        }
        handle.credit(u32::try_from(event.tasks.len()).unwrap());
        let complete = |claim: rdq_engine::ClaimedTask| {
            let action =
                Action::Complete { attempt: AttemptReport::default(), result: Bytes::new() };
            let (task_id, token) = (claim.task.id, claim.token);
            (0, ResolveRequest { task_id, token, action, decided_fail: false, strict: false })
        };
        handle.outcomes(event.tasks.into_iter().map(complete).collect()).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
fn main() {
    // `cargo test --all-targets` comes by too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for kept in [Duration::from_secs(3_600), Duration::ZERO] {
            let storage = Arc::new(MemoryStorage::new());
            let engine = Engine::start(storage, EngineOptions::default()).await.unwrap();
            let mut config = QueueConfig::default();
            config.retention.succeeded = Some(kept);
            engine.put_queue(QueueName::new("q").unwrap(), config).await.unwrap();
            let started = std::time::Instant::now();
            let producing = tokio::spawn(produce(engine.clone()));
            tokio::spawn(work(engine)).await.unwrap();
            producing.await.unwrap();
            let rate = TASKS as u128 * 1_000_000 / started.elapsed().as_micros();
            println!("{rate} lives a second, results kept for {kept:?}");
        }
    });
}
