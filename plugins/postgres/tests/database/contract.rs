//! The functions of the schema, called as a stranger would, beside a storage on the same tables.

use crate::given::{LONG, claim, completion, id, is_ignored, queue, store_on};
use futures::StreamExt as _;
use rdq_spi::{Call, ClaimRef, Storage as _, StorageError, TaskStatus};
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{Connection as _, PgConnection, Row as _, postgres::PgRow};
use std::time::Duration;

async fn call(db: &mut PgConnection, sql: &'static str) -> Result<PgRow, String> {
    let row = sqlx::query(sql).fetch_one(db).await;
    row.map_err(|error| {
        let error = error.into_database_error().unwrap();
        format!("{} {}", error.code().unwrap_or_default(), error.message())
    })
}

#[tokio::test]
async fn a_task_exists_when_the_callers_transaction_commits_and_a_rolled_back_one_never_did() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let server = PostgresServer::shared().await.unwrap();
    let (_schema, storage, mut db) = store_on(server).await;
    let mut hints = storage.wait_due(vec![queue("mail")]).await.unwrap();
    let enqueue = "SELECT * FROM enqueue('mail', 'send', 'hello', 'm1', 7,
        p_max_attempts => 3, p_headers => '{\"trace\": \"x\"}')";

    let mut tx = db.begin().await.unwrap();
    call(&mut tx, enqueue).await.unwrap();
    tx.rollback().await.unwrap();
    let gone = storage.get(id("m1")).await;
    assert!(matches!(gone, Err(StorageError::NotFound { .. })), "{gone:?}");

    let mut tx = db.begin().await.unwrap();
    let admitted = call(&mut tx, enqueue).await.unwrap();
    assert_eq!((admitted.get::<&str, _>("id"), admitted.get("created")), ("m1", true));
    assert!(storage.get(id("m1")).await.is_err(), "not before the commit");
    tx.commit().await.unwrap();

    let hint = tokio::time::timeout(Duration::from_secs(10), hints.next()).await;
    assert_eq!(hint.expect("a hint").expect("hints go on").queue, queue("mail"));
    let again = call(&mut db, enqueue).await.unwrap();
    assert!(!again.get::<bool, _>("created"), "the same task");
    let elsewhere = call(&mut db, "SELECT * FROM enqueue('other', 'send', 'x', 'm1')").await;
    assert!(elsewhere.unwrap_err().starts_with("RDQ03 ID_CONFLICT"));

    let claimed = claim(&storage, "mail", 1, LONG).await.remove(0);
    let task = &claimed.task;
    assert_eq!((task.id.as_str(), task.priority, task.overrides.max_attempts), ("m1", 7, Some(3)));
    // id, queue, handler, payload, header, priority, max_attempts: as protobuf has them.
    let expected = b"\x12\x02m1\x1a\x04mail\x22\x04send\x32\x05hello\x42\x0a\x0a\x05trace\x12\x01x\
        \x48\x07\x50\x03";
    assert_eq!(&task.envelope[..], expected);
}

#[tokio::test]
async fn a_stranger_claims_keeps_and_ends_beside_a_server() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let server = PostgresServer::shared().await.unwrap();
    let (_schema, storage, mut db) = store_on(server).await;
    for (name, end, status) in [
        ("t1", "SELECT complete($1, $2, 'ok') AS replayed", TaskStatus::Succeeded),
        ("t2", "SELECT reschedule($1, $2, '1 hour', 'http.503', 'busy')", TaskStatus::Pending),
        ("t3", "SELECT dead_letter($1, $2, 'http.400', 'bad')", TaskStatus::Dead),
        ("t4", "SELECT release($1, $2, '1 hour')", TaskStatus::Pending),
    ] {
        crate::given::admit(&storage, vec![crate::given::task(name, "q")]).await;
        let claimed = call(&mut db, "SELECT * FROM claim_due(ARRAY['none', 'q'], 'me', 5)");
        let claimed = claimed.await.unwrap();
        assert_eq!(claimed.get::<&str, _>("id"), name);
        assert_eq!(claimed.get::<&[u8], _>("payload"), b"hi");
        let token: Vec<u8> = claimed.get("claim_token");
        assert_eq!(claim(&storage, "q", 1, LONG).await.len(), 0, "it is held");
        let extend = sqlx::query("SELECT extend_lease($1, $2, '2 hours', 'half')");
        extend.bind(name).bind(&token).execute(&mut db).await.unwrap();

        for _ in 0..2 {
            // A repetition changes nothing and is no error.
            sqlx::query(end).bind(name).bind(&token).execute(&mut db).await.unwrap();
        }

        let task = storage.get(id(name)).await.unwrap();
        assert_eq!((task.status, &task.progress[..]), (status, &b"half"[..]), "{name}");
        let spent = u32::from(name != "t4");
        assert_eq!((task.attempt_count, task.attempts.len()), (spent, spent as usize), "{name}");
        let stale = sqlx::query("SELECT extend_lease($1, $2)").bind(name).bind(&token);
        let stale = stale.execute(&mut db).await.unwrap_err().into_database_error().unwrap();
        assert_eq!(stale.code().as_deref(), Some("RDQ01"), "{stale}");
    }
}

#[tokio::test]
async fn a_full_queue_does_not_starve_another_whoever_claims_one_by_one() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let server = PostgresServer::shared().await.unwrap();
    let (_schema, storage, mut db) = store_on(server).await;
    let full: Vec<_> = (0..300).map(|n| crate::given::task(format!("t{n}"), "full")).collect();
    crate::given::admit(&storage, full).await;
    crate::given::admit(&storage, vec![crate::given::task("alone", "other")]).await;

    let mut claims = 0;
    loop {
        let claim = "SELECT * FROM claim_due(ARRAY['full', 'other'], 'me')";
        let claimed = call(&mut db, claim).await.unwrap();
        if claimed.get::<&str, _>("id") == "alone" {
            break;
        }
        claims += 1;
    }
    // The lot falls on the full queue so often in a row once in 2^300 times.
    assert!(claims < 300, "it waited for all of the other queue");
}

#[tokio::test]
async fn a_servers_claim_and_a_strangers_are_one_kind() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let server = PostgresServer::shared().await.unwrap();
    let (_schema, storage, mut db) = store_on(server).await;
    crate::given::admit(&storage, vec![crate::given::task("t", "q")]).await;
    let claimed = claim(&storage, "q", 1, LONG).await.remove(0);

    let complete = sqlx::query("SELECT complete('t', $1) AS replayed").bind(&claimed.token.0[..]);
    assert!(!complete.fetch_one(&mut db).await.unwrap().get::<bool, _>("replayed"));

    let again = storage.resolve(vec![completion(&claimed)]).await.unwrap().remove(0).unwrap();
    assert!(again.replayed, "a stranger had done it");
    let other = rdq_spi::Resolution { call: Call::Release, ..completion(&claimed) };
    let stale = storage.resolve(vec![other]).await.unwrap().remove(0);
    assert!(matches!(stale, Err(StorageError::StaleClaim { .. })), "{stale:?}");
    let claim = ClaimRef { task_id: id("t"), token: claimed.token };
    assert_eq!(storage.live_claims(vec![claim]).await.unwrap(), [None]);
}

#[tokio::test]
async fn what_a_server_refuses_at_its_door_the_functions_refuse() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let server = PostgresServer::shared().await.unwrap();
    let (_schema, storage, mut db) = store_on(server).await;
    for (sql, refusal) in [
        ("SELECT * FROM enqueue('', 'h')", "RDQ04 INVALID_NAME"),
        ("SELECT * FROM enqueue(U&' \\00a0', 'h')", "RDQ04 INVALID_NAME"),
        ("SELECT * FROM enqueue(repeat('é', 121), 'h')", "RDQ04 INVALID_NAME"),
        ("SELECT * FROM enqueue('q', E'a\\u0085b')", "RDQ04 INVALID_NAME"),
        ("SELECT * FROM enqueue('__rdq_q', 'h')", "RDQ04 RESERVED_NAME"),
        ("SELECT * FROM enqueue('q', 'h', '', repeat('x', 256))", "RDQ04 INVALID_NAME"),
        ("SELECT * FROM enqueue('q', 'h', p_max_attempts => 0)", "RDQ04 INVALID_ARGUMENT"),
        (
            "SELECT * FROM enqueue('q', 'h', decode(repeat('00', 1048577), 'hex'))",
            "RDQ04 PAYLOAD_TOO_LARGE",
        ),
        ("SELECT * FROM claim_due(ARRAY['q'], '')", "RDQ04 INVALID_NAME"),
        ("SELECT * FROM claim_due(ARRAY['q'], 'w', 1, '0')", "RDQ04 INVALID_ARGUMENT"),
        ("SELECT complete('none', '')", "RDQ02 NOT_FOUND"),
    ] {
        let error = call(&mut db, sql).await.unwrap_err();
        assert!(error.starts_with(refusal), "{sql}: {error}");
    }
    assert_eq!(storage.queue_names(None, 10).await.unwrap(), [], "nothing was admitted");
}
