//! The ledger where it is PostgreSQL's own: who waits for whom, joined transactions, pruning side by
//! side, the plan of a prune, and what a lost answer or a crash leaves.

use crate::{
    given::{blocks, is_ignored, mutation, open, store_on, until_it_works},
    schema::Schema,
};
use bytes::Bytes;
use rdq_postgres::{PostgresStorage, join_namespace};
use rdq_spi::{
    Applied, CompareAndSet, Ledger as _, Mutation, NewMutation, Operation, PruneParams, RecordKey,
    RecordName, RecordSpace, Records as _, Rejected, Result, Storage as _, StorageError,
    Transactions as _,
};
use rdq_test_servers::{
    Proxy,
    postgres::{self, PostgresServer},
};
use sqlx::{AssertSqlSafe, Connection as _, Row as _, raw_sql};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

fn key(name: &str) -> RecordKey {
    RecordKey { space: RecordSpace::Caller, name: RecordName::new(name).unwrap() }
}

/// The mutation with an effect that happens once.
fn with_record(mutation: &NewMutation, name: &str) -> Vec<Operation> {
    let value = Some(Bytes::from_static(b"x"));
    let set = CompareAndSet { key: key(name), value, expected_revision: 0 };
    vec![Operation::Observe(mutation.clone()), Operation::CompareAndSet(set)]
}

fn observed_before(answer: Result<Vec<Applied>, Rejected>) -> Mutation {
    match answer {
        Err(Rejected { index: Some(0), error: StorageError::MutationObserved { mutation } }) => {
            *mutation
        }
        other => panic!("it was observed before: {other:?}"),
    }
}

async fn shared() -> &'static PostgresServer {
    PostgresServer::shared().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_observes_what_is_being_observed_waits_for_its_end_or_gives_up() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut watcher) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    let mut db = schema.connect().await;
    for is_meant in [false, true] {
        let name = format!("{is_meant}");
        let new = mutation(&name, "theirs");
        let mut holder = db.begin().await.unwrap();
        let mut joined = join_namespace(&mut holder, schema.name()).await.unwrap();
        joined.apply(with_record(&new, &format!("{name}-theirs"))).await.unwrap();
        let again = joined.apply(vec![Operation::Observe(new.clone())]).await;
        assert_eq!(observed_before(again).first, new, "it sees what it wrote");

        let operations = || with_record(&mutation(&name, "ours"), &format!("{name}-ours"));
        let waits = storage.commit(operations()).await.unwrap_err();
        assert!(matches!(waits.error, StorageError::Contention { .. }), "{waits:?}");
        let waiting = tokio::spawn({
            let (storage, operations) = (Arc::clone(&storage), operations());
            async move { storage.commit(operations).await }
        });
        blocks(&mut holder, &mut watcher).await;
        let ended = "SELECT clock_ms() AS now";
        let ended: i64 = sqlx::query_scalar(ended).fetch_one(&mut watcher).await.unwrap();
        if is_meant {
            holder.commit().await.unwrap();
        } else {
            holder.rollback().await.unwrap();
        }

        let answer = waiting.await.unwrap();
        let recorded = storage.mutation(new.scope.clone()).await.unwrap().unwrap();
        if is_meant {
            assert_eq!(observed_before(answer), recorded);
            assert_eq!(recorded.first, new);
        } else {
            assert_eq!(answer.unwrap(), [Applied::Observed, Applied::Recorded(1)]);
            assert_eq!(recorded.first.response, "ours");
            assert!(recorded.observed_at.millis() >= ended, "the clock is read after the wait");
        }
        for (whose, is_there) in [("theirs", is_meant), ("ours", !is_meant)] {
            let record = storage.get_record(key(&format!("{name}-{whose}"))).await.unwrap();
            assert_eq!(record.is_some(), is_there, "{whose} if that is {is_meant}");
        }
    }
}

#[tokio::test]
async fn an_applications_transaction_observes_with_its_own_rows() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut db) = store_on(shared().await).await;
    raw_sql("CREATE TABLE orders (id integer)").execute(&mut db).await.unwrap();
    let new = mutation("order-7", "paid");
    let orders = "SELECT count(*) AS n FROM orders";
    for (is_meant, count) in [(false, 0), (true, 1)] {
        let mut tx = db.begin().await.unwrap();
        raw_sql("INSERT INTO orders VALUES (7)").execute(&mut *tx).await.unwrap();
        let mut joined = join_namespace(&mut tx, schema.name()).await.unwrap();
        let applied = joined.apply(with_record(&new, "r")).await.unwrap();
        assert_eq!(applied, [Applied::Observed, Applied::Recorded(1)]);
        let seen = joined.mutation(new.scope.clone()).await.unwrap().unwrap();
        assert_eq!((&seen.first, &seen.answers[..]), (&new, &[Applied::Recorded(1)][..]));
        assert_eq!(storage.mutation(new.scope.clone()).await.unwrap(), None);
        if is_meant {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let there = storage.mutation(new.scope.clone()).await.unwrap();
        assert_eq!(there, is_meant.then_some(seen));
        let row = sqlx::query(orders).fetch_one(&mut db).await.unwrap();
        assert_eq!(row.get::<i64, _>("n"), count);
    }

    // What is refused leaves the application's transaction as it was.
    let mut tx = db.begin().await.unwrap();
    raw_sql("INSERT INTO orders VALUES (7)").execute(&mut *tx).await.unwrap();
    let mut joined = join_namespace(&mut tx, schema.name()).await.unwrap();
    let recorded = observed_before(joined.apply(with_record(&new, "again")).await);
    assert_eq!(Some(recorded), joined.mutation(new.scope.clone()).await.unwrap());
    assert_eq!(joined.get_record(key("again")).await.unwrap(), None);
    tx.commit().await.unwrap();
    let row = sqlx::query(orders).fetch_one(&mut db).await.unwrap();
    assert_eq!(row.get::<i64, _>("n"), 2);
}

#[tokio::test]
async fn a_transaction_whose_snapshot_is_older_than_the_record_is_told_to_come_again() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut db) = store_on(shared().await).await;
    let new = mutation("m", "x");
    let mut tx = db.begin().await.unwrap();
    let snapshot = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM mutations";
    raw_sql(snapshot).execute(&mut *tx).await.unwrap();
    storage.commit(vec![Operation::Observe(new.clone())]).await.unwrap();

    let mut joined = join_namespace(&mut tx, schema.name()).await.unwrap();
    let rejected = joined.apply(with_record(&new, "r")).await.unwrap_err();

    assert!(matches!(rejected.error, StorageError::Contention { .. }), "{rejected:?}");
    assert_eq!(joined.get_record(key("r")).await.unwrap(), None);
    tx.commit().await.unwrap();
    assert_eq!(storage.mutation(new.scope.clone()).await.unwrap().unwrap().first, new);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repetition_after_a_lost_answer_gets_what_the_first_call_did() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = PostgresServer::start().await.unwrap();
    let port = server.local().unwrap().port();
    let proxy = Proxy::before(format!("127.0.0.1:{port}")).await.unwrap();
    let schema = Schema::new(&server);
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let storage = open(&schema.url_through(&url)).await;
    let new = mutation("m", "done");

    // Before the commit, nothing is unknown, and the place is left.
    for place in ["observe(", "UPDATE mutations"] {
        proxy.lose_answer_to(place);
        let rejected = storage.commit(with_record(&new, "r")).await.unwrap_err();
        assert!(matches!(rejected.error, StorageError::Unavailable { .. }), "{rejected:?}");
        assert_eq!(storage.mutation(new.scope.clone()).await.unwrap(), None);
    }
    proxy.lose_answer_to("COMMIT");
    let rejected = storage.commit(with_record(&new, "r")).await.unwrap_err();
    assert!(matches!(rejected.error, StorageError::OutcomeUnknown { .. }), "{rejected:?}");
    assert_eq!(proxy.lost(), 3);

    let recorded = observed_before(storage.commit(with_record(&new, "r")).await);
    assert_eq!((recorded.first, &recorded.answers[..]), (new, &[Applied::Recorded(1)][..]));
    assert_eq!(storage.get_record(key("r")).await.unwrap().unwrap().revision, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_keeps_records_and_effects_together() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = PostgresServer::start().await.unwrap();
    let schema = Schema::new(&server);
    let storage = Arc::new(open(&schema.url()).await);
    let ends = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let (storage, ends) = (Arc::clone(&storage), Arc::clone(&ends));
            tokio::spawn(async move {
                let mut sent = Vec::new();
                while !ends.load(Ordering::SeqCst) {
                    let name = format!("{caller}-{}", sent.len());
                    let answer = storage.commit(with_record(&mutation(&name, "x"), &name)).await;
                    sent.push((name, answer.is_ok()));
                }
                sent
            })
        })
        .collect();
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let local = server.local().unwrap();
        local.kill();
        local.start_again().unwrap();
        until_it_works(async || storage.ping().await).await;
    }
    ends.store(true, Ordering::SeqCst);

    let (mut acknowledged, mut failed) = (0, 0);
    for caller in callers {
        for (name, is_acknowledged) in caller.await.unwrap() {
            let new = mutation(&name, "x");
            let recorded = storage.mutation(new.scope.clone()).await.unwrap();
            let effect = storage.get_record(key(&name)).await.unwrap();
            assert_eq!(recorded.is_some(), effect.is_some(), "{name}: both or neither");
            assert!(recorded.is_some() || !is_acknowledged, "{name} was acknowledged");
            if let Some(recorded) = recorded {
                assert_eq!(recorded.answers, [Applied::Recorded(1)]);
            }
            *(if is_acknowledged { &mut acknowledged } else { &mut failed }) += 1;
        }
    }
    assert!(acknowledged > 0 && failed > 0, "{acknowledged} went well, {failed} did not");
}

async fn observe_all(storage: &PostgresStorage, count: usize) {
    for number in 0..count {
        let new = mutation(&format!("m{number}"), "x");
        storage.commit(vec![Operation::Observe(new)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_prunes_beside_another_passes_over_what_went_and_takes_the_next() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut watcher) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    observe_all(&storage, 5).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut db = schema.connect().await;
    let mut other = db.begin().await.unwrap();
    let prune = sqlx::query(include_str!("../../src/queries/prune.sql")).bind(1_i64).bind(2_i64);
    assert_eq!(prune.execute(&mut *other).await.unwrap().rows_affected(), 2);

    let params = PruneParams { older_than: Duration::from_millis(1), limit: 2 };
    let waiting = tokio::spawn({
        let storage = Arc::clone(&storage);
        async move { storage.prune(params).await }
    });
    blocks(&mut other, &mut watcher).await;
    other.commit().await.unwrap();

    let step = waiting.await.unwrap().unwrap();
    assert_eq!((step.count, step.more), (2, true));
    let last = storage.prune(params).await.unwrap();
    assert_eq!((last.count, last.more), (1, false));
}

#[tokio::test]
async fn a_prune_goes_by_the_index_whatever_the_statistics_say() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut db) = store_on(shared().await).await;
    // Analysed while empty: the planner believes that it still is.
    raw_sql("VACUUM ANALYZE mutations").execute(&mut db).await.unwrap();
    observe_all(&storage, 50).await;
    sqlx::query(include_str!("../../src/queries/settle.sql"))
        .bind(schema.name())
        .bind("30s")
        .bind("5s")
        .execute(&mut db)
        .await
        .unwrap();
    let explain = format!("EXPLAIN {}", include_str!("../../src/queries/prune.sql"));
    let rows = sqlx::query(AssertSqlSafe(explain)).bind(0_i64).bind(10_i64);
    let rows = rows.fetch_all(&mut db).await.unwrap();
    let plan: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    let plan = plan.join("\n");
    for expected in ["Index Scan using mutations_age on mutations", "Tid Scan on mutations"] {
        assert!(plan.contains(expected), "{plan}");
    }
    for wrong in ["Seq Scan", "Sort"] {
        assert!(!plan.contains(wrong), "{wrong}: {plan}");
    }
}
