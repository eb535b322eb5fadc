//! Whole lives a second (enqueue, claim, complete) without a server: what the lock and the order of
//! the queue allow. A plain program: `cargo bench -p rdq-memory`.

use bytes::Bytes;
use rdq_memory::MemoryStorage;
use rdq_spi::{
    AttemptReport, Call, ClaimParams, ClaimQueue, ClaimRef, Moment, NewTask, Outcome, Overrides,
    QueueName, Resolution, Storage, SweepParams, TaskId, WorkerId,
};
use std::{sync::Arc, time::Duration};

const BATCH: u32 = 500;
const ROUNDS: u32 = 2_000;
const ENVELOPE_BYTES: usize = 200;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for backlog in [0, 1_000_000] {
        // What is kept for a while outgrows the processor's caches, as in a real server.
        for kept in [Duration::ZERO, Duration::from_millis(100)] {
            run(backlog, kept).await;
        }
    }
}

async fn run(backlog: u32, kept: Duration) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let queue = QueueName::stored("bench");
    let envelope = Bytes::from(vec![7; ENVELOPE_BYTES]);
    // Tasks that wait for later, to see what the size of the queue costs.
    for round in 0..backlog / BATCH {
        let due = Moment::In(Duration::from_secs(3600) + Duration::from_millis(round.into()));
        let tasks =
            (0..BATCH).map(|index| task(&format!("b{round}-{index}"), &queue, &envelope, due));
        storage.enqueue(tasks.collect()).await.expect("memory does not fail");
    }
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
    let start = std::time::Instant::now();
    for round in 0..ROUNDS {
        let tasks = (0..BATCH)
            .map(|index| task(&format!("t{round}-{index}"), &queue, &envelope, Moment::NOW));
        storage.enqueue(tasks.collect()).await.expect("memory does not fail");
        assert_eq!(claim_and_complete(&*storage, &queue).await, BATCH as usize);
        sweep(&*storage, &queue, kept).await;
    }
    let rate = f64::from(BATCH * ROUNDS) / start.elapsed().as_secs_f64();
    println!("{rate:>9.0} lives/s, kept for {kept:?}, beside {backlog} waiting tasks");
}

fn task(id: &str, queue: &QueueName, envelope: &Bytes, due: Moment) -> NewTask {
    NewTask {
        id: TaskId::stored(id),
        queue: queue.clone(),
        handler_ref: queue.clone(),
        priority: 0,
        due,
        expires: None,
        created_at: None,
        envelope: envelope.clone(),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

async fn claim_and_complete(storage: &dyn Storage, queue: &QueueName) -> usize {
    let lease = Duration::from_secs(60);
    let params = ClaimParams {
        queues: vec![ClaimQueue { queue: queue.clone(), lease, lease_max: lease }],
        limit: BATCH,
        bytes_max: usize::MAX,
        lease: None,
        worker_id: WorkerId::stored("worker"),
    };
    let answers = storage.claim_due(vec![params]).await.expect("memory does not fail");
    let claims = answers.into_iter().flatten().flat_map(|claimed| claimed.claims);
    let resolutions = claims.map(|claim| Resolution {
        claim: ClaimRef { task_id: claim.task.id, token: claim.token },
        call: Call::Complete,
        outcome: Outcome::Succeed {
            attempt: AttemptReport::default(),
            result: Bytes::new(),
            forget: false,
        },
        strict: false,
    });
    let answers = storage.resolve(resolutions.collect()).await.expect("memory does not fail");
    answers.into_iter().flatten().count()
}

/// Removes what has been kept long enough, as maintenance would.
async fn sweep(storage: &dyn Storage, queue: &QueueName, kept: Duration) {
    let params = SweepParams {
        queue: queue.clone(),
        expire: true,
        succeeded_older_than: Some(rdq_spi::Age::LongerThan(kept)),
        cancelled_older_than: None,
        dead: None,
        limit: 2 * BATCH,
    };
    storage.sweep(params).await.expect("memory does not fail");
}
