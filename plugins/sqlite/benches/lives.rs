//! Whole lives a second through the storage, beside the bare loop that its goal is a ratio of. Both
//! run on the same file system, one after the other, with a sync for each commit.
#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark stops where it fails")]

use bytes::Bytes;
use rdq_spi::{
    AttemptReport, Call, ClaimParams, ClaimQueue, ClaimRef, Moment, NewTask, Outcome, Overrides,
    QueueName, Resolution, Storage, TaskId, WorkerId,
};
use rdq_sqlite::{SqliteOptions, SqliteStorage};
use rusqlite::{Connection, params};
use std::{
    path::Path,
    time::{Duration, Instant},
};

const BACKLOG: usize = 100_000;
const LIVES: usize = 100_000;
const BATCH: usize = 100;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let dir = tempfile::tempdir_in(std::env::current_dir().unwrap()).unwrap();
    let bare = bare_loop(&dir.path().join("bare.db"));
    println!("bare whole-life loop        {bare:>9.0} lives/s");

    let path = dir.path().join("rdq.db");
    let storage = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
    let queue = QueueName::new("q").unwrap();
    let backlog: Vec<_> = (0..BACKLOG).map(|n| new_task(&queue, n)).collect();
    timed("enqueue 100 (backlog)", BACKLOG, bare, async {
        for tasks in backlog.chunks(BATCH) {
            storage.enqueue(tasks.to_vec()).await.unwrap();
        }
    })
    .await;

    // One call after the other: what each costs alone.
    let mut claimed = Vec::new();
    timed("claim 100", LIVES / 4, bare, async {
        for _ in 0..LIVES / 4 / BATCH {
            claimed.push(claim(&storage, &queue).await);
        }
    })
    .await;
    timed("complete 100, kept", LIVES / 4, bare, async {
        for claims in claimed.drain(..) {
            storage.resolve(claims).await.unwrap();
        }
    })
    .await;

    // The three at once, and two batches of each on their way, as a server under load calls them.
    let storage = std::sync::Arc::new(storage);
    timed("whole lives of 100", LIVES, bare, async {
        let lines = [1, 2].map(|line| {
            let (storage, queue) = (storage.clone(), queue.clone());
            tokio::spawn(live(storage, queue, line * 10 * BACKLOG))
        });
        for line in lines {
            line.await.unwrap();
        }
    })
    .await;

    let mut times: Vec<Duration> = Vec::new();
    for n in 0..2_000 {
        let task = new_task(&queue, 90 * BACKLOG + n);
        #[expect(clippy::disallowed_methods, reason = "measures how long a call takes")]
        let start = Instant::now();
        storage.enqueue(vec![task]).await.unwrap();
        times.push(start.elapsed());
    }
    times.sort();
    println!("enqueue 1, alone             p50 {:?}, p99 {:?}", times[1_000], times[1_980]);
    storage.close().await;
}

async fn live(storage: std::sync::Arc<SqliteStorage>, queue: QueueName, mut next: usize) {
    let mut done = Vec::new();
    for _ in 0..LIVES / BATCH / 2 {
        let tasks = (next..next + BATCH).map(|n| new_task(&queue, n)).collect();
        next += BATCH;
        let (enqueued, claims, resolved) = tokio::join!(
            storage.enqueue(tasks),
            claim(&storage, &queue),
            storage.resolve(std::mem::take(&mut done)),
        );
        enqueued.unwrap();
        resolved.unwrap();
        done = claims;
    }
}

fn new_task(queue: &QueueName, n: usize) -> NewTask {
    NewTask {
        id: TaskId::new(format!("01K0000000000000{n:010}")).unwrap(),
        queue: queue.clone(),
        handler_ref: queue.clone(),
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from(vec![7; 130]),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

async fn claim(storage: &SqliteStorage, queue: &QueueName) -> Vec<Resolution> {
    let params = ClaimParams {
        queues: vec![ClaimQueue {
            queue: queue.clone(),
            lease: Duration::from_secs(60),
            lease_max: Duration::from_secs(3_600),
        }],
        limit: u32::try_from(BATCH).unwrap(),
        bytes_max: 1 << 20,
        lease: None,
        worker_id: WorkerId::new("worker").unwrap(),
    };
    let mut answers = storage.claim_due(vec![params]).await.unwrap();
    let claimed = answers.pop().unwrap().unwrap();
    assert_eq!(claimed.claims.len(), BATCH);
    let done = claimed.claims.into_iter().map(|claim| Resolution {
        claim: ClaimRef { task_id: claim.task.id, token: claim.token },
        call: Call::Complete,
        outcome: Outcome::Succeed {
            attempt: AttemptReport::default(),
            result: Bytes::new(),
            forget: false,
        },
        strict: false,
    });
    done.collect()
}

async fn timed(what: &str, count: usize, bare: f64, work: impl Future<Output = ()>) {
    #[expect(clippy::disallowed_methods, reason = "measures how long a call takes")]
    let start = Instant::now();
    work.await;
    let rate = rate(count, start);
    println!("{what:<27} {rate:>9.0} tasks/s   {:>5.2} of the bare loop", rate / bare);
}

#[expect(clippy::cast_precision_loss, reason = "a rate")]
fn rate(count: usize, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

/// Insert, claim and delete a hundred tasks in each transaction, on the smallest table that could
/// be a queue.
fn bare_loop(path: &Path) -> f64 {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE task (id INTEGER PRIMARY KEY, queue INTEGER NOT NULL, state INTEGER NOT NULL,
             due INTEGER NOT NULL, token INTEGER, payload BLOB NOT NULL) STRICT;
         CREATE INDEX ready ON task (queue, due) WHERE state = 0;",
    )
    .unwrap();
    let payload = vec![7_u8; 100];
    let insert = "INSERT INTO task (queue, state, due, payload) VALUES (1, 0, ?1, ?2)";
    db.execute_batch("BEGIN").unwrap();
    for n in 0..BACKLOG {
        db.prepare_cached(insert).unwrap().execute(params![n, payload]).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
    #[expect(clippy::disallowed_methods, reason = "measures how long a loop takes")]
    let start = Instant::now();
    for batch in 0..LIVES / BATCH {
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut sql = db.prepare_cached(insert).unwrap();
        for n in 0..BATCH {
            sql.execute(params![BACKLOG + batch * BATCH + n, payload]).unwrap();
        }
        let select =
            "SELECT id, payload FROM task WHERE queue = 1 AND state = 0 ORDER BY due LIMIT ?1";
        let mut sql = db.prepare_cached(select).unwrap();
        let due: Vec<(i64, Vec<u8>)> = sql
            .query_map([BATCH], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        let mut claim =
            db.prepare_cached("UPDATE task SET state = 1, token = ?2 WHERE id = ?1").unwrap();
        for (id, _) in &due {
            claim.execute(params![id, id]).unwrap();
        }
        let mut delete =
            db.prepare_cached("DELETE FROM task WHERE id = ?1 AND token = ?2").unwrap();
        for (id, _) in &due {
            delete.execute(params![id, id]).unwrap();
        }
        db.execute_batch("COMMIT").unwrap();
    }
    rate(LIVES, start)
}
