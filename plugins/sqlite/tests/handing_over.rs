//! Claims that wait while tasks are admitted, in one transaction with them: they get what claims
//! that come after the admission would get.
#![allow(clippy::unwrap_used, reason = "a test says where it fails")]

use bytes::Bytes;
use futures::poll;
use rdq_spi::{
    Admission, Call, Claim, ClaimParams, ClaimQueue, ClaimRef, Claimed, Moment, NewTask, Outcome,
    Overrides, QueueName, Resolution, Result, Storage as _, TaskId, TaskStatus, WorkerId,
};
use rdq_sqlite::{SqliteOptions, SqliteStorage};
use rusqlite::Connection;
use std::{pin::pin, time::Duration};

const LEASE: Duration = Duration::from_secs(60);

/// A store, and a connection that can make its writer wait.
struct Store {
    _dir: tempfile::TempDir,
    storage: SqliteStorage,
    other: Connection,
}

impl Store {
    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rdq.db");
        let storage = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
        let other = Connection::open(&path).unwrap();
        let store = Self { _dir: dir, storage, other };
        // The queue is known, and has nothing.
        store.storage.enqueue(vec![new_task("first", 0)]).await.unwrap();
        let claimed = store.claim(claim(1)).await;
        store.complete(&claimed.claims[0]).await;
        store
    }

    /// Serves an admission and a claim that both wait when the transaction begins.
    async fn together(
        &self,
        tasks: Vec<NewTask>,
        claim: ClaimParams,
    ) -> (Vec<TaskStatus>, Claimed) {
        self.other.execute_batch("BEGIN IMMEDIATE;").unwrap();
        let mut admitted = pin!(self.storage.enqueue(tasks));
        let mut claimed = pin!(self.storage.claim_due(vec![claim]));
        assert!(poll!(&mut admitted).is_pending() && poll!(&mut claimed).is_pending());
        self.other.execute_batch("ROLLBACK;").unwrap();
        let admitted = admitted.await.unwrap();
        let status = |answer: Result<Admission>| answer.unwrap().status;
        (admitted.into_iter().map(status).collect(), one(claimed.await.unwrap()))
    }

    async fn claim(&self, claim: ClaimParams) -> Claimed {
        one(self.storage.claim_due(vec![claim]).await.unwrap())
    }

    async fn complete(&self, claim: &Claim) {
        let resolution = Resolution {
            claim: ClaimRef { task_id: claim.task.id.clone(), token: claim.token.clone() },
            call: Call::Complete,
            outcome: Outcome::Succeed {
                attempt: rdq_spi::AttemptReport::default(),
                result: Bytes::new(),
                forget: true,
            },
            strict: false,
        };
        let resolved = self.storage.resolve(vec![resolution]).await.unwrap();
        assert_eq!(resolved.into_iter().next().unwrap().unwrap().status, TaskStatus::Succeeded);
    }
}

fn one(answers: Vec<Result<Claimed>>) -> Claimed {
    let [answer] = <[_; 1]>::try_from(answers).unwrap();
    answer.unwrap()
}

fn new_task(id: &str, priority: i32) -> NewTask {
    let queue = QueueName::new("q").unwrap();
    NewTask {
        id: TaskId::new(id).unwrap(),
        queue: queue.clone(),
        handler_ref: queue,
        priority,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from_static(b"sent"),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

fn claim(limit: u32) -> ClaimParams {
    let queue = QueueName::new("q").unwrap();
    ClaimParams {
        queues: vec![ClaimQueue { queue, lease: LEASE, lease_max: LEASE }],
        limit,
        bytes_max: 1 << 20,
        lease: None,
        worker_id: WorkerId::new("w").unwrap(),
    }
}

fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.claims.iter().map(|claim| claim.task.id.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_claim_gets_what_is_admitted_in_the_order_of_claims() {
    let store = Store::open().await;
    let mut later = new_task("later", 9);
    later.due = Moment::In(Duration::from_secs(3600));
    let mut old = new_task("old", 0);
    old.due = Moment::At(rdq_spi::Timestamp::from_millis(1));
    let mut large = new_task("large", -1);
    large.envelope = Bytes::from(vec![7; 5000]);
    let tasks = vec![new_task("low", -7), new_task("a", 0), later, old, new_task("b", 0), large];

    let (statuses, claimed) = store.together(tasks.clone(), claim(10)).await;

    assert_eq!(statuses, [TaskStatus::Pending; 6], "as they were admitted");
    assert_eq!(ids(&claimed), ["old", "a", "b", "large", "low"]);
    let hour = claimed.next_due_in.unwrap();
    assert!(hour > LEASE / 2 && hour <= Duration::from_secs(3600), "{hour:?}");
    assert_eq!(ids(&store.claim(claim(10)).await), [""; 0], "each was handed out once");
    let generations: Vec<_> = claimed.claims.iter().map(|claim| claim.generation).collect();
    for claim in &claimed.claims {
        let kept = store.storage.get(claim.task.id.clone()).await.unwrap();
        assert_eq!(kept, claim.task, "the claim shows the task as it left it");
        let sent = tasks.iter().find(|task| task.id == kept.id).unwrap();
        assert_eq!((kept.envelope.clone(), kept.priority), (sent.envelope.clone(), sent.priority));
        assert_eq!(generations.iter().filter(|of| **of == claim.generation).count(), 1);
        store.complete(claim).await;
    }
    let stats = store.storage.stats(QueueName::new("q").unwrap()).await.unwrap();
    assert_eq!((stats.ready, stats.delayed, stats.in_flight), (0, 1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_with_less_room_gets_the_first_by_priority() {
    let store = Store::open().await;
    let tasks = vec![new_task("low", -1), new_task("high", 1), new_task("middle", 0)];
    let (_, claimed) = store.together(tasks, claim(2)).await;
    assert_eq!(ids(&claimed), ["high", "middle"]);
    assert_eq!(claimed.next_due_in, Some(Duration::ZERO));
    assert_eq!(ids(&store.claim(claim(9)).await), ["low"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_due_before_goes_first() {
    let store = Store::open().await;
    store.storage.enqueue(vec![new_task("before", 0)]).await.unwrap();
    let (_, claimed) = store.together(vec![new_task("new", 0)], claim(1)).await;
    assert_eq!(ids(&claimed), ["before"]);
    assert_eq!(ids(&store.claim(claim(9)).await), ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lapsed_before_goes_first() {
    let store = Store::open().await;
    store.storage.enqueue(vec![new_task("before", 0)]).await.unwrap();
    let short = ClaimParams { lease: Some(Duration::from_millis(1)), ..claim(1) };
    assert_eq!(ids(&store.claim(short).await), ["before"]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (_, claimed) = store.together(vec![new_task("new", 0)], claim(1)).await;
    assert_eq!(ids(&claimed), ["before"]);
    assert_eq!(claimed.claims[0].task.lease_expired_count, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_there_is_not_handed_over_again() {
    let store = Store::open().await;
    let twice = vec![new_task("a", 0), new_task("a", 0), new_task("b", 0)];
    let (_, claimed) = store.together(twice.clone(), claim(9)).await;
    assert_eq!(ids(&claimed), ["a", "b"]);
    let (statuses, again) = store.together(twice, claim(9)).await;
    assert_eq!(statuses, [TaskStatus::InFlight; 3]);
    assert_eq!(ids(&again), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_handed_over_lapses_like_any_other() {
    let store = Store::open().await;
    let short = ClaimParams { lease: Some(Duration::from_millis(1)), ..claim(1) };
    let (_, claimed) = store.together(vec![new_task("a", 0)], short).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let again = store.claim(claim(1)).await;
    assert_eq!(ids(&again), ["a"]);
    assert!(again.claims[0].generation > claimed.claims[0].generation);
    assert_eq!(again.claims[0].task.lease_expired_count, 1);
}
