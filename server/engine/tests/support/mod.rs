//! The scene of the engine's tests: a memory storage with or without its optional capabilities, one
//! that fails and dawdles, and the words that the stories are told in. It decides nothing.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]

pub mod shell;
mod faculties;

use bytes::Bytes;
use rdq_engine::{
    Action, ClaimRequest, ClaimedTask, Engine, EngineError, EngineOptions, ResolveRequest,
    Submission,
};
use rdq_memory::MemoryStorage;
use rdq_spi::{
    AttemptError, AttemptReport, Moment, NewTask, Overrides, QueueName, Resolved, Storage,
    StorageError, TaskId, WorkerId,
};
use shell::{Shell, Trouble};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// One store, and engines on it.
pub struct Scene {
    pub memory: MemoryStorage,
    pub shell: Arc<Shell>,
    pub engine: Engine,
    pub masked: bool,
}

/// The same story over a storage with every optional capability, and over one with none.
pub async fn scenes() -> [Scene; 2] {
    scenes_with(EngineOptions::default()).await
}

pub async fn scenes_with(options: EngineOptions) -> [Scene; 2] {
    [scene(false, options.clone()).await, scene(true, options).await]
}

pub async fn scene(masked: bool, options: EngineOptions) -> Scene {
    let memory = MemoryStorage::new();
    let shell = Arc::new(Shell::new(memory.clone(), masked, Trouble::none()));
    let engine = Engine::start(shell.clone(), options).await.unwrap();
    Scene { memory, shell, engine, masked }
}

impl Scene {
    /// Another server on the same store.
    pub async fn another(&self) -> Engine {
        let shell = Shell::new(self.memory.clone(), self.masked, Trouble::none());
        Engine::start(Arc::new(shell), EngineOptions::default()).await.unwrap()
    }
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub fn id(name: impl AsRef<str>) -> TaskId {
    TaskId::new(name).unwrap()
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A task of queue `q`, due now.
pub fn task(name: impl AsRef<str>) -> NewTask {
    NewTask {
        id: id(name),
        queue: queue("q"),
        handler_ref: queue("handler"),
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from_static(b"envelope"),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

pub fn submission(task: NewTask) -> Submission {
    Submission { task, payload_bytes: 8 }
}

pub async fn enqueue(engine: &Engine, task: NewTask) {
    engine.enqueue(submission(task)).await.unwrap();
}

pub async fn enqueue_many(engine: &Engine, count: usize) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = || format!("task-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let tasks = (0..count).map(|_| submission(task(name()))).collect();
    for answer in engine.enqueue_batch(tasks).await {
        assert!(answer.unwrap().created);
    }
}

pub fn claim_request(limit: u32) -> ClaimRequest {
    ClaimRequest { queues: vec![queue("q")], limit, lease: None, worker_id: worker("w") }
}

pub async fn claim(engine: &Engine, limit: u32) -> Vec<ClaimedTask> {
    engine.claim(claim_request(limit)).await.unwrap()
}

pub async fn claim_one(engine: &Engine) -> ClaimedTask {
    let mut claimed = claim(engine, 1).await;
    assert_eq!(claimed.len(), 1, "one task is due");
    claimed.remove(0)
}

pub fn report(error_type: &str) -> AttemptReport {
    let error = Some(AttemptError::new(error_type, "it broke"));
    AttemptReport { error, ..AttemptReport::default() }
}

pub fn request(claim: &ClaimedTask, action: Action) -> ResolveRequest {
    let (task_id, token) = (claim.task.id.clone(), claim.token.clone());
    ResolveRequest { task_id, token, action, decided_fail: false, strict: false }
}

pub fn complete(claim: &ClaimedTask) -> ResolveRequest {
    let (attempt, result) = (AttemptReport::default(), Bytes::new());
    request(claim, Action::Complete { attempt, result })
}

pub fn fail(claim: &ClaimedTask, error_type: &str) -> ResolveRequest {
    request(claim, Action::Fail { attempt: report(error_type), judgement: None })
}

pub async fn resolve(engine: &Engine, request: ResolveRequest) -> Resolved {
    engine.resolve(request).await.unwrap()
}

/// Lets everything run that can, without time passing to speak of.
pub async fn settle() {
    tokio::time::sleep(millis(5)).await;
}

pub fn is_stale(error: &EngineError) -> bool {
    matches!(error, EngineError::Storage(e) if matches!(**e, StorageError::StaleClaim { .. }))
}

/// The queue's counts: ready, in flight, dead.
pub async fn counts(scene: &Scene) -> (u64, u64, u64) {
    let stats = scene.memory.stats(queue("q")).await.unwrap();
    (stats.ready, stats.in_flight, stats.dead)
}
