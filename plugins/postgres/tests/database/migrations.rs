//! Schemas are made once however many servers start, and are not touched where they are not ours.

use crate::{
    given::{LONG, admit, claim, completion, id, is_ignored, mutation, open, queue, task},
    schema::Schema,
};
use bytes::Bytes;
use rdq_postgres::{OpenError, PostgresOptions, PostgresStorage};
use rdq_spi::{
    Applied, AttemptReport, Call, ClaimRef, ClaimToken, Ledger as _, NewEvent, Operation, Outcome,
    RedriveParams, Resolution, Selection, Storage as _, StreamName, TaskStatus, Transactions as _,
};
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, raw_sql};
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

async fn shared() -> &'static PostgresServer {
    PostgresServer::shared().await.unwrap()
}

async fn try_open(schema: &Schema) -> Result<PostgresStorage, OpenError> {
    PostgresStorage::open(PostgresOptions::from_url(&schema.url()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_servers_that_start_at_once_on_nothing_share_one_schema() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let schema = Schema::new(shared().await);
    let opening: Vec<_> = (0..8)
        .map(|_| {
            let url = schema.url();
            tokio::spawn(async move { open(&url).await })
        })
        .collect();
    let mut storages = Vec::new();
    for opened in opening {
        storages.push(opened.await.unwrap());
    }
    for (n, storage) in storages.iter().enumerate() {
        admit(storage, vec![task(format!("t{n}"), "q")]).await;
    }
    let ready = storages[0].stats(queue("q")).await.unwrap().ready;
    assert_eq!(ready, 8);
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_stays_as_it_is() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let schema = Schema::new(shared().await);
    drop(open(&schema.url()).await);
    let mut db = schema.connect().await;
    raw_sql("UPDATE schema_version SET version = 1000").execute(&mut db).await.unwrap();

    let error = try_open(&schema).await.unwrap_err();

    assert!(matches!(error, OpenError::NewerSchema { found: 1000, .. }), "{error:?}");
    let row = sqlx::query("SELECT version FROM schema_version").fetch_one(&mut db).await.unwrap();
    assert_eq!(row.get::<i32, _>("version"), 1000);
}

#[tokio::test]
async fn a_schema_of_somebody_else_is_refused_and_stays_as_it_is() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let schema = Schema::new(shared().await);
    let mut db = PgConnection::connect(schema.server()).await.unwrap();
    let theirs = format!("CREATE SCHEMA {0}; CREATE TABLE {0}.tasks (x integer);", schema.name());
    raw_sql(AssertSqlSafe(theirs)).execute(&mut db).await.unwrap();

    let error = try_open(&schema).await.unwrap_err();

    assert!(matches!(error, OpenError::Foreign { .. }), "{error:?}");
    let tables = sqlx::query("SELECT count(*) AS n FROM pg_tables WHERE schemaname = $1")
        .bind(schema.name())
        .fetch_one(&mut db)
        .await
        .unwrap();
    assert_eq!(tables.get::<i64, _>("n"), 1);
}

/// The migrations that older versions had.
const RELEASED: [&str; 16] = [
    include_str!("../../migrations/0001_tasks.sql"),
    include_str!("../../migrations/0002_histories.sql"),
    include_str!("../../migrations/0003_admission.sql"),
    include_str!("../../migrations/0004_claims.sql"),
    include_str!("../../migrations/0005_holding.sql"),
    include_str!("../../migrations/0006_dead_letters.sql"),
    include_str!("../../migrations/0007_maintenance.sql"),
    include_str!("../../migrations/0008_contract.sql"),
    include_str!("../../migrations/0009_plans.sql"),
    include_str!("../../migrations/0010_unfinished.sql"),
    include_str!("../../migrations/0011_admission.sql"),
    include_str!("../../migrations/0012_claims.sql"),
    include_str!("../../migrations/0013_holding.sql"),
    include_str!("../../migrations/0014_finished.sql"),
    include_str!("../../migrations/0015_plans.sql"),
    include_str!("../../migrations/0020_coordination.sql"),
];

/// Makes the schema as a server of this version would have, and connects to it.
async fn of_version(version: usize, schema: &Schema) -> PgConnection {
    let mut db = schema.connect().await;
    let name = schema.name();
    let make = format!(
        "CREATE SCHEMA {name}; CREATE TABLE {name}.schema_version (
            one boolean PRIMARY KEY DEFAULT true CHECK (one), version integer NOT NULL);
        INSERT INTO {name}.schema_version (version) VALUES ({version});"
    );
    raw_sql(AssertSqlSafe(make)).execute(&mut db).await.unwrap();
    let mut step = db.begin().await.unwrap();
    for migration in &RELEASED[..version] {
        raw_sql(*migration).execute(&mut *step).await.unwrap();
    }
    step.commit().await.unwrap();
    db
}

/// Claims what is due, one task, and answers its id and its token.
async fn claim_by_sql(db: &mut PgConnection, lease: &str) -> (String, Vec<u8>) {
    let claim = "SELECT id, claim_token FROM claim_due(ARRAY['q'], 'me', 1, $1::interval)";
    let row = sqlx::query(claim).bind(lease).fetch_one(db).await.unwrap();
    (row.get("id"), row.get("claim_token"))
}

#[tokio::test]
async fn a_schema_of_version_9_is_upgraded_with_tasks_in_every_status_and_all_are_served() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let schema = Schema::new(shared().await);
    let mut db = of_version(9, &schema).await;
    let mut tokens = HashMap::new();
    // Each is claimed as it comes, so that none of them is due before the next.
    for (name, lease, end) in [
        ("held", "1 hour", ""),
        ("succeeded", "1 hour", "SELECT complete($1, $2, 'done')"),
        ("dead", "1 hour", "SELECT dead_letter($1, $2, 'http.400', 'bad')"),
        ("retried", "1 hour", "SELECT reschedule($1, $2, '1 hour', 'http.503', 'busy')"),
        ("cancelled", "1 hour", "SELECT status FROM cancel_batch(ARRAY[$1]) WHERE $2 > ''::bytea"),
        ("lapsed", "10 ms", ""),
    ] {
        let admit = sqlx::query("SELECT * FROM enqueue('q', 'handler', 'hi', $1)");
        admit.bind(name).execute(&mut db).await.unwrap();
        let (id, token) = claim_by_sql(&mut db, lease).await;
        assert_eq!(id, name);
        if !end.is_empty() {
            sqlx::query(end).bind(name).bind(&token).execute(&mut db).await.unwrap();
        }
        tokens.insert(name, ClaimToken(token.into()));
    }
    raw_sql(
        "SELECT enqueue('q', 'handler', 'hi', 'pending', 7);
        SELECT enqueue('q', 'handler', 'hi', 'delayed', p_delay => '1 hour');
        SELECT enqueue('q', 'handler', decode(repeat('ab', 5000), 'hex'), 'large');
        SELECT enqueue('q', 'handler', decode(repeat('cd', 5000), 'hex'), 'large-2');
        SELECT cancel_batch(ARRAY['large-2']);",
    )
    .execute(&mut db)
    .await
    .unwrap();
    let before = statuses(&mut db).await;

    let storage = open(&schema.url()).await;

    assert_eq!(statuses(&mut db).await, before, "as whoever reads the tables sees them");
    let claim_of = |name: &str| ClaimRef { task_id: id(name), token: tokens[name].clone() };
    let left = storage.live_claims(vec![claim_of("held")]).await.unwrap();
    assert!(left[0].is_some(), "a claim outlives the upgrade");
    for name in ["held", "succeeded"] {
        let resolution = Resolution {
            claim: claim_of(name),
            call: Call::Complete,
            outcome: Outcome::Succeed {
                attempt: AttemptReport::default(),
                result: Bytes::from_static(b"done"),
                forget: false,
            },
            strict: false,
        };
        let resolved = storage.resolve(vec![resolution]).await.unwrap().remove(0).unwrap();
        assert_eq!((resolved.status, resolved.replayed), (TaskStatus::Succeeded, name != "held"));
        assert_eq!(&storage.get(id(name)).await.unwrap().result[..], b"done");
    }
    for (name, status) in [
        ("dead", TaskStatus::Dead),
        ("cancelled", TaskStatus::Cancelled),
        ("retried", TaskStatus::Pending),
        ("delayed", TaskStatus::Pending),
        ("large-2", TaskStatus::Cancelled),
    ] {
        assert_eq!(storage.get(id(name)).await.unwrap().status, status, "{name}");
    }
    let large = storage.get(id("large-2")).await.unwrap();
    assert!(large.envelope.ends_with(&[0xcd; 5_000]), "a large payload moves, too");
    let dead = storage.get(id("dead")).await.unwrap();
    assert_eq!(dead.attempts[0].error.as_ref().unwrap().error_type, "http.400");
    let again = storage.enqueue(vec![task("dead", "q")]).await.unwrap().remove(0).unwrap();
    assert!(!again.created, "an id that has ended is taken");
    let redrive = RedriveParams {
        queue: queue("q"),
        selection: Selection::All,
        dry_run: false,
        limit: 10,
        delay: Duration::ZERO,
        spacing: Duration::ZERO,
        position: None,
    };
    assert_eq!(storage.redrive(redrive).await.unwrap().count, 1);

    let claims = claim(&storage, "q", 10, LONG).await;

    let ids: Vec<_> = claims.iter().map(|it| it.task.id.as_str()).collect();
    assert_eq!(ids[0], "pending", "priorities are kept");
    assert_eq!(
        ids.iter().collect::<HashSet<_>>(),
        HashSet::from([&"pending", &"large", &"lapsed", &"dead"])
    );
    for it in &claims {
        let expected = u32::from(it.task.id.as_str() == "lapsed");
        assert_eq!(it.task.lease_expired_count, expected, "{:?}", it.task.id);
        if it.task.id.as_str() == "large" {
            assert!(it.task.envelope.ends_with(&[0xab; 5_000]));
        }
    }
    let done = storage.resolve(claims.iter().map(completion).collect()).await.unwrap();
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    // What came with the upgrade and goes by the new tables.
    raw_sql("SELECT outbox_enqueue('mail', 'hi', 'message')").execute(&mut db).await.unwrap();
    assert_eq!(storage.get(id("message")).await.unwrap().queue.as_str(), "__rdq_outbox:mail");
}

#[tokio::test]
async fn a_schema_of_version_16_gets_the_ledger() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let schema = Schema::new(shared().await);
    let mut db = of_version(16, &schema).await;
    raw_sql("SELECT publish('s', 'x')").execute(&mut db).await.unwrap();

    let storage = open(&schema.url()).await;

    let stream = StreamName::new("s").unwrap();
    let event = NewEvent { stream, key: None, payload: Bytes::from_static(b"y") };
    let new = mutation("m", "done");
    let operations = vec![Operation::Observe(new.clone()), Operation::Publish(event)];
    let applied = storage.commit(operations).await.unwrap();
    assert_eq!(applied, [Applied::Observed, Applied::Published(2)]);
    assert_eq!(storage.mutation(new.scope.clone()).await.unwrap().unwrap().first, new);
}

#[tokio::test]
async fn an_upgrade_that_fails_changes_nothing_and_can_be_repeated() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let schema = Schema::new(shared().await);
    let mut db = of_version(9, &schema).await;
    raw_sql(
        "SELECT enqueue('q', 'handler', 'hi', 'held');
        SELECT enqueue('q', 'handler', 'hi', 'pending');",
    )
    .execute(&mut db)
    .await
    .unwrap();
    let (_, token) = claim_by_sql(&mut db, "1 hour").await;
    let before = statuses(&mut db).await;
    // In the way of the last migration, when all tasks have been moved.
    raw_sql("CREATE TABLE mutations (theirs integer)").execute(&mut db).await.unwrap();

    let error = try_open(&schema).await.unwrap_err();

    assert!(matches!(error, OpenError::Sql(_)), "{error:?}");
    assert_eq!(statuses(&mut db).await, before);
    let version = sqlx::query("SELECT version FROM schema_version").fetch_one(&mut db).await;
    assert_eq!(version.unwrap().get::<i32, _>("version"), 9);
    // What served it serves on.
    assert_eq!(claim_by_sql(&mut db, "10 ms").await.0, "pending");
    raw_sql("DROP TABLE mutations").execute(&mut db).await.unwrap();
    let storage = open(&schema.url()).await;
    let held = ClaimRef { task_id: id("held"), token: ClaimToken(token.into()) };
    assert!(storage.live_claims(vec![held]).await.unwrap()[0].is_some());
}

/// What the documented table says of every task.
async fn statuses(db: &mut PgConnection) -> Vec<(String, i16, i64, i32, Vec<u8>)> {
    let read = "SELECT id, status, attempt_count, priority, envelope FROM tasks ORDER BY id";
    let rows = sqlx::query(read).persistent(false).fetch_all(db).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect()
}
