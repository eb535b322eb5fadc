//! Scene words of these tests.

use crate::schema::Schema;
use bytes::Bytes;
use rdq_postgres::{PostgresOptions, PostgresStorage};
use rdq_spi::{
    AttemptReport, Call, Claim, ClaimParams, ClaimQueue, ClaimRef, Claimed, Moment, MutationKey,
    MutationKind, MutationScope, MutationStatus, NewMutation, NewTask, OperationName, Outcome,
    Overrides, QueueName, Resolution, Storage, StorageError, SubjectName, TaskId, WorkerId,
};
use rdq_test_servers::postgres::PostgresServer;
use sqlx::{Connection as _, PgConnection};
use std::time::Duration;

pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// Whether this test is to be left out, for want of a server; says why.
#[allow(clippy::needless_pass_by_value, reason = "it is made for this call")]
pub(crate) fn is_ignored(missing: Option<String>) -> bool {
    if let Some(reason) = &missing {
        eprintln!("ignored: {reason}");
    }
    missing.is_some()
}

pub(crate) async fn open(url: &str) -> PostgresStorage {
    PostgresStorage::open(PostgresOptions::from_url(url).unwrap()).await.unwrap()
}

/// A store of its own on this server, and a connection into its schema.
pub(crate) async fn store_on(server: &PostgresServer) -> (Schema, PostgresStorage, PgConnection) {
    let schema = Schema::new(server);
    let storage = open(&schema.url()).await;
    let db = schema.connect().await;
    (schema, storage, db)
}

impl Schema {
    /// A connection of a stranger, in whose search path the schema is.
    pub(crate) async fn connect(&self) -> PgConnection {
        let mut db = PgConnection::connect(self.server()).await.unwrap();
        let path = format!("SET search_path = {}", self.name());
        sqlx::raw_sql(sqlx::AssertSqlSafe(path)).execute(&mut db).await.unwrap();
        db
    }
}

pub(crate) fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn id(text: impl AsRef<str>) -> TaskId {
    TaskId::new(text).unwrap()
}

pub(crate) fn task(name: impl AsRef<str>, queue_name: &str) -> NewTask {
    NewTask {
        id: id(name),
        queue: queue(queue_name),
        handler_ref: queue("handler"),
        priority: 0,
        due: Moment::NOW,
        expires: None,
        created_at: None,
        envelope: Bytes::from_static(b"\x32\x02hi"),
        overrides: Overrides::default(),
        attempt_count: 0,
        redrive_count: 0,
        lease_expired_count: 0,
        progress: Bytes::new(),
        attempts: Vec::new(),
    }
}

pub(crate) async fn admit(storage: &dyn Storage, tasks: Vec<NewTask>) {
    for answer in storage.enqueue(tasks).await.unwrap() {
        assert!(answer.unwrap().created);
    }
}

pub(crate) fn claim_params(queue_name: &str, limit: u32, lease: Duration) -> ClaimParams {
    ClaimParams {
        queues: vec![ClaimQueue { queue: queue(queue_name), lease, lease_max: LONG }],
        limit,
        bytes_max: 1 << 20,
        lease: None,
        worker_id: WorkerId::new("me").unwrap(),
    }
}

pub(crate) async fn claim(
    storage: &dyn Storage,
    queue_name: &str,
    limit: u32,
    lease: Duration,
) -> Vec<Claim> {
    let claims = storage.claim_due(vec![claim_params(queue_name, limit, lease)]).await;
    let Claimed { claims, .. } = claims.unwrap().remove(0).unwrap();
    claims
}

pub(crate) fn completion(claim: &Claim) -> Resolution {
    Resolution {
        claim: ClaimRef { task_id: claim.task.id.clone(), token: claim.token.clone() },
        call: Call::Complete,
        outcome: Outcome::Succeed {
            attempt: AttemptReport::default(),
            result: Bytes::new(),
            forget: false,
        },
        strict: false,
    }
}

/// A mutation that is accepted.
pub(crate) fn mutation(key: &str, response: &'static str) -> NewMutation {
    NewMutation {
        scope: MutationScope {
            subject: SubjectName::new("customer").unwrap(),
            operation: OperationName::new("transfer").unwrap(),
            key: MutationKey::new(key).unwrap(),
        },
        kind: MutationKind::new("order").unwrap(),
        eligibility_claim: Bytes::from_static(b"generation 7"),
        fingerprint: [7; 32],
        status: MutationStatus::Accepted,
        response: response.into(),
    }
}

/// Repeats a call until the storage is there again.
pub(crate) async fn until_it_works<T>(mut call: impl AsyncFnMut() -> Result<T, StorageError>) -> T {
    let works = async {
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(StorageError::Unavailable { .. } | StorageError::OutcomeUnknown { .. }) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let answer = tokio::time::timeout(Duration::from_secs(60), works).await;
    answer.expect("service resumes by itself")
}

/// Waits until somebody waits for what this connection holds.
pub(crate) async fn blocks(holder: &mut PgConnection, watcher: &mut PgConnection) {
    let pid: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *holder).await.unwrap();
    let blocked = "SELECT EXISTS (
        SELECT FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))";
    let until = async {
        while !sqlx::query_scalar::<_, bool>(blocked)
            .bind(pid)
            .fetch_one(&mut *watcher)
            .await
            .unwrap()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), until).await.expect("somebody waits for it");
}
