//! Coordination where it is PostgreSQL's own: functions in an application's transaction, joined
//! transactions, who waits for whom, and what a lost connection leaves.

use crate::{
    given::{LONG, claim_params, id, is_ignored, open, queue, store_on, task},
    schema::Schema,
};
use bytes::Bytes;
use futures::StreamExt as _;
use rdq_postgres::{JoinError, PostgresStorage, join_namespace};
use rdq_spi::{
    Applied, ChannelName, ClaimQueue, CompareAndSet, ConsumerName, EventKey, NewEvent, Operation,
    QueueName, ReadFrom, ReadParams, RecordKey, RecordName, RecordSpace, SaveOffset, Signals as _,
    Storage, StorageError, StreamEvent, StreamName, Streams as _, Topic, Transactions as _, Wake,
    Wakes,
};
use rdq_test_servers::{
    Proxy,
    postgres::{self, PostgresServer},
};
use sqlx::{Connection as _, PgConnection, Row as _, raw_sql};
use std::{sync::Arc, time::Duration};

/// Longer than anything takes that is not lost.
const LOST: Duration = Duration::from_secs(60);

fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

fn stream(name: &str) -> StreamName {
    StreamName::new(name).unwrap()
}

fn event(name: &str, payload: &'static str) -> NewEvent {
    NewEvent { stream: stream(name), key: None, payload: Bytes::from_static(payload.as_bytes()) }
}

fn key(name: &str) -> RecordKey {
    RecordKey { space: RecordSpace::Caller, name: RecordName::new(name).unwrap() }
}

fn set(name: &str, expected_revision: i64) -> CompareAndSet {
    CompareAndSet { key: key(name), value: Some(Bytes::from_static(b"x")), expected_revision }
}

fn read_params(name: &str) -> ReadParams {
    let from = ReadFrom::Offset(0);
    ReadParams { stream: stream(name), from, limit: 100, bytes_max: 1 << 20 }
}

async fn read(storage: &PostgresStorage, name: &str) -> Vec<StreamEvent> {
    storage.read(read_params(name)).await.unwrap()
}

async fn next(wakes: &mut Wakes) -> Wake {
    let wake = tokio::time::timeout(LOST, wakes.next()).await;
    wake.expect("a wake was lost").expect("wakes go on")
}

async fn hear(wakes: &mut Wakes, topic: &Topic) {
    while next(wakes).await != Wake::News(topic.clone()) {}
}

async fn shared() -> &'static PostgresServer {
    PostgresServer::shared().await.unwrap()
}

#[tokio::test]
async fn functions_write_in_the_callers_transaction_and_servers_are_told_at_its_commit() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (_schema, storage, mut db) = store_on(shared().await).await;
    let topics = [Topic::Channel(channel("news")), Topic::Stream(stream("orders"))];
    let mut wakes = storage.listen(topics.to_vec()).await.unwrap();
    let outbox = QueueName::stored("__rdq_outbox:mail");
    let mut hints = storage.wait_due(vec![outbox.clone()]).await.unwrap();
    let publish =
        "SELECT publish('orders', 'first', 'key') AS one, publish('orders', 'second') AS two";
    let enqueue = "SELECT outbox_enqueue('mail', 'hello', 'm1', '{\"trace\": \"x\"}') AS id";
    for is_meant in [false, true] {
        let mut tx = db.begin().await.unwrap();
        let offsets = sqlx::query(publish).fetch_one(&mut *tx).await.unwrap();
        assert_eq!((offsets.get::<i64, _>("one"), offsets.get::<i64, _>("two")), (1, 2));
        raw_sql("SELECT notify('news', 'anything')").execute(&mut *tx).await.unwrap();
        let message = sqlx::query(enqueue).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(message.get::<&str, _>("id"), "m1");
        assert_eq!(read(&storage, "orders").await, [], "not before the commit");
        if is_meant {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
            assert_eq!(read(&storage, "orders").await, []);
            assert!(storage.get(id("m1")).await.is_err());
        }
    }
    // Of the first one nothing was heard: the next wake is the second one's.
    hear(&mut wakes, &topics[0]).await;
    hear(&mut wakes, &topics[1]).await;
    let hint = tokio::time::timeout(LOST, hints.next()).await.expect("a hint").expect("a hint");
    assert_eq!(hint.queue, outbox);
    let events = read(&storage, "orders").await;
    let seen: Vec<_> = events.iter().map(|event| (event.offset, &event.payload[..])).collect();
    assert_eq!(seen, [(1, &b"first"[..]), (2, &b"second"[..])]);
    assert_eq!(events[0].key, Some(EventKey::new("key").unwrap()));
    assert_eq!(events[1].key, None);
    let from = ClaimQueue { queue: outbox, lease: LONG, lease_max: LONG };
    let claim = rdq_spi::ClaimParams { queues: vec![from], ..claim_params("mail", 1, LONG) };
    let claimed = storage.claim_due(vec![claim]).await.unwrap().remove(0).unwrap().claims.remove(0);
    // id, queue, handler, payload, header: as protobuf has them.
    let expected = b"\x12\x02m1\x1a\x11__rdq_outbox:mail\x22\x0c__rdq_outbox\x32\x05hello\
        \x42\x0a\x0a\x05trace\x12\x01x";
    assert_eq!(&claimed.task.envelope[..], expected);
    assert_eq!(claimed.task.handler_ref.as_str(), "__rdq_outbox");
}

#[tokio::test]
async fn what_a_server_refuses_at_its_door_the_functions_of_coordination_refuse() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (_schema, storage, mut db) = store_on(shared().await).await;
    for (sql, refusal) in [
        ("SELECT publish('', 'x')", "RDQ04 INVALID_NAME"),
        ("SELECT publish('__rdq_s', 'x')", "RDQ04 RESERVED_NAME"),
        ("SELECT publish('s', 'x', '')", "RDQ04 INVALID_NAME"),
        ("SELECT publish('s', 'x', repeat('k', 1025))", "RDQ04 INVALID_NAME"),
        ("SELECT publish('s', decode(repeat('00', 1048577), 'hex'))", "RDQ04 PAYLOAD_TOO_LARGE"),
        ("SELECT notify(' ')", "RDQ04 INVALID_NAME"),
        ("SELECT notify('__rdq_c')", "RDQ04 RESERVED_NAME"),
        ("SELECT notify('c', repeat('x', 8001))", "RDQ04 PAYLOAD_TOO_LARGE"),
        ("SELECT outbox_enqueue(repeat('é', 121), 'x')", "RDQ04 INVALID_NAME"),
        ("SELECT outbox_enqueue('__rdq_o', 'x')", "RDQ04 RESERVED_NAME"),
        ("SELECT outbox_enqueue('o', 'x', '')", "RDQ04 INVALID_NAME"),
        (
            "SELECT outbox_enqueue('o', decode(repeat('00', 1048577), 'hex'))",
            "RDQ04 PAYLOAD_TOO_LARGE",
        ),
        (
            "SELECT outbox_enqueue('one', 'x', 'taken'), outbox_enqueue('two', 'x', 'taken')",
            "RDQ03 ID_CONFLICT",
        ),
    ] {
        let error = raw_sql(sql).execute(&mut db).await.unwrap_err().into_database_error().unwrap();
        let said = format!("{} {}", error.code().unwrap_or_default(), error.message());
        assert!(said.starts_with(refusal), "{sql}: {said}");
    }
    assert_eq!(storage.queue_names(None, 10).await.unwrap(), [], "nothing was enqueued");
    assert_eq!(read(&storage, "s").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_was_cut_off_says_so_and_hears_again() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut db) = store_on(shared().await).await;
    let other = open(&schema.url()).await;
    let topic = Topic::Channel(channel("c"));
    let mut wakes = storage.listen(vec![topic.clone()]).await.unwrap();
    for _ in 0..3 {
        // Both handles listen on the channel of this schema.
        let killed = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity, store
            WHERE query LIKE 'LISTEN \"rdq_' || encode(store_id, 'hex') || '\"'",
        );
        assert_eq!(killed.fetch_all(&mut db).await.unwrap().len(), 2);
        while next(&mut wakes).await != Wake::Reconnected {}
        other.notify(vec![channel("c")]).await.unwrap();
        hear(&mut wakes, &topic).await;
        // The other one is there again, too, before it is cut off the next time.
        let mut of_other = other.listen(vec![topic.clone()]).await.unwrap();
        loop {
            storage.notify(vec![channel("c")]).await.unwrap();
            let heard = tokio::time::timeout(Duration::from_millis(200), of_other.next()).await;
            if matches!(heard, Ok(Some(Wake::News(_)))) {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishers_wait_for_a_stream_that_another_holds_and_give_up() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (_schema, storage, mut db) = store_on(shared().await).await;
    let storage = Arc::new(storage);
    let mut holder = db.begin().await.unwrap();
    raw_sql("SELECT publish('s', 'never')").execute(&mut *holder).await.unwrap();

    let publishers: Vec<_> = (0..8)
        .map(|_| {
            let storage = Arc::clone(&storage);
            tokio::spawn(async move { storage.publish(vec![event("s", "x")]).await })
        })
        .collect();
    for publisher in publishers {
        let answer = publisher.await.unwrap();
        assert!(matches!(answer, Err(StorageError::Contention { .. })), "{answer:?}");
    }
    let elsewhere = storage.publish(vec![event("elsewhere", "x")]).await.unwrap();
    assert!(matches!(elsewhere[..], [Ok(1)]), "{elsewhere:?}");
    let mixed = vec![Operation::CompareAndSet(set("r", 0)), Operation::Publish(event("s", "x"))];
    let rejected = storage.commit(mixed).await.unwrap_err();
    assert!(matches!(rejected.error, StorageError::Contention { .. }), "{rejected:?}");

    holder.rollback().await.unwrap();
    assert!(matches!(storage.publish(vec![event("s", "x")]).await.unwrap()[..], [Ok(1)]));
    assert_eq!(read(&storage, "s").await.len(), 1);
    let change = vec![Operation::CompareAndSet(set("r", 0))];
    assert_eq!(storage.commit(change).await.unwrap(), [Applied::Recorded(1)], "nothing was left");
}

/// How many sessions of this schema's storages are inside a transaction and idle.
async fn open_transactions(db: &mut PgConnection, schema: &Schema) -> i64 {
    // Whoever touched one of the schema's tables in its transaction still has a lock on it.
    let sql = "SELECT count(DISTINCT a.pid) AS n FROM pg_stat_activity a
        JOIN pg_locks l ON l.pid = a.pid JOIN pg_class c ON c.oid = l.relation
        WHERE a.state LIKE 'idle in transaction%' AND c.relnamespace::regnamespace::text = $1";
    sqlx::query(sql).bind(schema.name()).fetch_one(db).await.unwrap().get("n")
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transactions_are_few_and_leave_everybody_else_their_connections() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut db) = store_on(shared().await).await;
    let mut open = Vec::new();
    let refused = loop {
        match storage.begin().await {
            Ok(mut transaction) => {
                let name = format!("s{}", open.len());
                let event = NewEvent { stream: stream(&name), ..event("s", "x") };
                transaction.apply(vec![Operation::Publish(event)]).await.unwrap();
                open.push(transaction);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StorageError::Contention { .. }), "{refused:?}");
    assert_eq!(open.len(), 5);
    assert_eq!(open_transactions(&mut db, &schema).await, 5);
    let calls = (0..40).map(|n| {
        let name = format!("t{n}");
        let storage = &storage;
        async move { storage.enqueue(vec![task(name, "q")]).await.unwrap() }
    });
    futures::future::join_all(calls).await;

    // Half of them end by being dropped, one in the midst of a call.
    drop(open.split_off(3));
    let mut cut_short = open.pop().unwrap();
    let call = tokio::time::timeout(Duration::from_micros(50), async {
        loop {
            cut_short.apply(vec![Operation::Publish(event("other", "x"))]).await.unwrap();
        }
    });
    assert!(call.await.is_err());
    drop(cut_short);
    open.pop().unwrap().rollback().await.unwrap();
    open.pop().unwrap().commit().await.unwrap();
    let none_left = async {
        while open_transactions(&mut db, &schema).await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LOST, none_left).await.expect("each was ended");
    for (name, count) in [("s0", 1), ("s1", 0), ("s2", 0), ("s3", 0), ("s4", 0), ("other", 0)] {
        assert_eq!(read(&storage, name).await.len(), count, "{name}");
    }
    for _ in 0..6 {
        storage.begin().await.unwrap().rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_handle_ends_its_transactions_and_does_not_wait_for_them() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, _db) = store_on(shared().await).await;
    let mut transaction = storage.begin().await.unwrap();
    transaction.apply(vec![Operation::Publish(event("s", "never"))]).await.unwrap();
    storage.close().await;
    let rejected = transaction.apply(vec![Operation::Publish(event("s", "never"))]).await;
    assert!(matches!(rejected.unwrap_err().error, StorageError::Closed));
    let answer = transaction.commit().await;
    assert!(matches!(answer, Err(StorageError::Closed)), "{answer:?}");
    assert!(matches!(storage.begin().await, Err(StorageError::Closed)));
    assert_eq!(read(&open(&schema.url()).await, "s").await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_whose_session_is_ended_is_over_and_left_nothing() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut db) = store_on(shared().await).await;
    let mut transaction = storage.begin().await.unwrap();
    transaction.apply(vec![Operation::Publish(event("s", "never"))]).await.unwrap();
    let killed = sqlx::query(
        "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE c.relnamespace::regnamespace::text = $1 AND c.relname = 'events'
            AND l.mode = 'RowExclusiveLock'",
    );
    assert_eq!(killed.bind(schema.name()).fetch_all(&mut db).await.unwrap().len(), 1);

    let rejected = transaction.apply(vec![Operation::Publish(event("s", "never"))]).await;
    let error = rejected.unwrap_err().error;
    assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
    let over = transaction.commit().await;
    assert!(matches!(over, Err(StorageError::Contention { .. })), "{over:?}");
    let answer = storage.publish(vec![event("s", "x")]).await.unwrap();
    assert!(matches!(answer[..], [Ok(1)]), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_said_to_be_unknown() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = PostgresServer::start().await.unwrap();
    let port = server.local().unwrap().port();
    let proxy = Proxy::before(format!("127.0.0.1:{port}")).await.unwrap();
    let schema = Schema::new(&server);
    let url = format!("postgres://postgres@{}/postgres", proxy.address());
    let storage = open(&schema.url_through(&url)).await;
    let mut wakes = storage.listen(vec![Topic::Stream(stream("s"))]).await.unwrap();
    let is_unknown = |error: &StorageError| matches!(error, StorageError::OutcomeUnknown { .. });

    let mut transaction = storage.begin().await.unwrap();
    transaction.apply(vec![Operation::Publish(event("s", "x"))]).await.unwrap();
    proxy.lose_answer_to("COMMIT");
    let error = transaction.commit().await.unwrap_err();
    assert!(is_unknown(&error), "{error:?}");
    hear(&mut wakes, &Topic::Stream(stream("s"))).await;
    assert_eq!(read(&storage, "s").await.len(), 1, "it was committed");

    let operations =
        || vec![Operation::CompareAndSet(set("r", 0)), Operation::Publish(event("s", "y"))];
    proxy.lose_answer_to("COMMIT");
    let rejected = storage.commit(operations()).await.unwrap_err();
    assert!(is_unknown(&rejected.error), "{rejected:?}");
    // Before the commit, nothing is unknown.
    proxy.lose_answer_to("compare_and_set_batch");
    let rejected = storage.commit(operations()).await.unwrap_err();
    assert!(matches!(rejected.error, StorageError::Unavailable { .. }), "{rejected:?}");
    assert_eq!(proxy.lost(), 3);
    assert_eq!(read(&storage, "s").await.len(), 2);
}

#[tokio::test]
async fn an_applications_transaction_is_joined() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, _own) = store_on(shared().await).await;
    let mut db = PgConnection::connect(schema.server()).await.unwrap();
    // Not of the test's schema, and settings that a call of ours must leave alone.
    let table = format!("orders_of_{}", schema.name());
    let make = format!(
        "CREATE TABLE {table} (id integer); SET lock_timeout = '7s'; SET enable_nestloop = off"
    );
    raw_sql(sqlx::AssertSqlSafe(make)).execute(&mut db).await.unwrap();
    let insert = format!("INSERT INTO {table} VALUES (7)");
    let topics = [Topic::Channel(channel("c")), Topic::Stream(stream("s"))];
    let mut wakes = storage.listen(topics.to_vec()).await.unwrap();
    let mut hints = storage.wait_due(vec![queue("q")]).await.unwrap();
    let reader = ConsumerName::new("reader").unwrap();
    let save = SaveOffset { stream: stream("s"), consumer: reader.clone(), offset: 1 };

    for is_meant in [false, true] {
        let mut tx = db.begin().await.unwrap();
        raw_sql(sqlx::AssertSqlSafe(insert.clone())).execute(&mut *tx).await.unwrap();
        let mut joined = join_namespace(&mut tx, schema.name()).await.unwrap();
        assert!(joined.enqueue(task("t", "q")).await.unwrap().created);
        assert_eq!(joined.publish(event("s", "x")).await.unwrap(), 1);
        joined.notify(channel("c")).await.unwrap();
        assert_eq!(joined.save_offset(save.clone()).await.unwrap(), 1);
        assert_eq!(joined.compare_and_set(set("r", 0)).await.unwrap(), 1);
        assert!(joined.cancel(id("t")).await.unwrap().changed);
        assert!(joined.enqueue(task("u", "q")).await.unwrap().created);

        // What is refused changes nothing, and the transaction goes on.
        let refused = vec![Operation::Publish(event("s", "no")), Operation::Cancel(id("none"))];
        let rejected = joined.apply(refused).await.unwrap_err();
        assert_eq!(rejected.index, Some(1), "{rejected:?}");
        assert!(matches!(rejected.error, StorageError::NotFound { .. }), "{rejected:?}");
        let conflict = joined.compare_and_set(set("r", 5)).await;
        assert!(matches!(conflict, Err(StorageError::CasConflict { .. })), "{conflict:?}");

        assert_eq!(joined.get(id("t")).await.unwrap().status, rdq_spi::TaskStatus::Cancelled);
        assert_eq!(joined.read(read_params("s")).await.unwrap().len(), 1);
        assert_eq!(joined.offset(stream("s"), reader.clone()).await.unwrap(), 1);
        assert_eq!(joined.get_record(key("r")).await.unwrap().unwrap().revision, 1);
        let settings = "SELECT current_setting('search_path') AS path,
            current_setting('lock_timeout') AS patience,
            current_setting('enable_nestloop') AS nestloop,
            current_setting('enable_seqscan') AS seqscan";
        let settings = sqlx::query(settings).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(settings.get::<&str, _>("path"), "\"$user\", public");
        assert_eq!(settings.get::<&str, _>("patience"), "7s");
        assert_eq!(settings.get::<&str, _>("nestloop"), "off");
        assert_eq!(settings.get::<&str, _>("seqscan"), "on");
        assert_eq!(read(&storage, "s").await, []);
        if is_meant {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
            assert!(storage.get(id("u")).await.is_err());
        }
    }
    hear(&mut wakes, &topics[0]).await;
    hear(&mut wakes, &topics[1]).await;
    tokio::time::timeout(LOST, hints.next()).await.expect("a hint").expect("a hint");
    assert_eq!(read(&storage, "s").await.len(), 1);
    assert!(storage.get(id("u")).await.is_ok());
    let orders = format!("SELECT count(*) AS n FROM {table}");
    let orders = sqlx::query(sqlx::AssertSqlSafe(orders)).fetch_one(&mut db).await.unwrap();
    assert_eq!(orders.get::<i64, _>("n"), 1);
    let drop = format!("DROP TABLE {table}");
    raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut db).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_joined_is_refused_and_left_alone() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, _storage, mut own) = store_on(shared().await).await;
    let mut db = PgConnection::connect(schema.server()).await.unwrap();
    let outside = join_namespace(&mut db, schema.name()).await;
    assert!(matches!(outside, Err(JoinError::NoTransaction)), "{outside:?}");
    let mut tx = db.begin().await.unwrap();
    let nowhere = join_namespace(&mut tx, "no_schema_of_this_name").await;
    assert!(matches!(nowhere, Err(JoinError::NoSchema { .. })), "{nowhere:?}");
    let no_name = join_namespace(&mut tx, "a; DROP SCHEMA b").await;
    assert!(matches!(no_name, Err(JoinError::Namespace { .. })), "{no_name:?}");
    for version in ["1", "1000"] {
        let set = format!("UPDATE schema_version SET version = {version}");
        raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut own).await.unwrap();
        let other = join_namespace(&mut tx, schema.name()).await;
        assert!(matches!(other, Err(JoinError::Version { .. })), "{other:?}");
    }
    raw_sql("SELECT 1").execute(&mut *tx).await.expect("the transaction goes on");
}
