//! Servers that would lose what they acknowledge, or that are not spoken to directly, are refused.

use crate::{given::is_ignored, schema::Schema};
use rdq_postgres::{OpenError, PostgresOptions, PostgresStorage};
use rdq_test_servers::{
    pgbouncer::{self, PgBouncer},
    postgres::{self, PostgresServer},
};

async fn refusal(url: &str) -> OpenError {
    PostgresStorage::open(PostgresOptions::from_url(url).unwrap()).await.unwrap_err()
}

#[tokio::test]
async fn a_server_that_does_not_sync_or_takes_no_writes_is_refused_by_the_setting() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    for (setting, named) in
        [("fsync=off", "fsync"), ("default_transaction_read_only=on", "read_only")]
    {
        let server = PostgresServer::start_with(&[setting]).await.unwrap();
        let error = refusal(&Schema::new(&server).url()).await;
        assert!(matches!(error, OpenError::Setting { .. }), "{error:?}");
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_by_name_and_one_in_session_mode_is_not() {
    if is_ignored(postgres::missing_locally().or_else(pgbouncer::missing)) {
        return;
    }
    let mut server = PostgresServer::start().await.unwrap();
    let port = server.local().unwrap().port();
    let pooler = PgBouncer::start("transaction", port).unwrap();
    let error = refusal(&Schema::at(&pooler.url()).url()).await;
    assert!(matches!(error, OpenError::Pooler { .. }), "{error:?}");
    assert!(error.to_string().contains("pooler in transaction mode"), "{error}");

    let pooler = PgBouncer::start("session", port).unwrap();
    let storage = crate::given::open(&Schema::at(&pooler.url()).url()).await;
    crate::given::admit(&storage, vec![crate::given::task("t", "q")]).await;
    let claims = crate::given::claim(&storage, "q", 1, crate::given::LONG).await;
    assert_eq!(claims.len(), 1);
}

#[tokio::test]
async fn a_server_that_acknowledges_before_it_syncs_is_told_otherwise() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let server = PostgresServer::start_with(&["synchronous_commit=off"]).await.unwrap();
    let (schema, storage, mut db) = crate::given::store_on(&server).await;
    // A function that runs inside of the storage's own session says what holds there.
    let witness = "CREATE TABLE witness (setting text);
        CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO witness VALUES (current_setting('synchronous_commit'));
            RETURN new;
        END; $$;
        CREATE TRIGGER see BEFORE INSERT ON unfinished EXECUTE FUNCTION see();";
    sqlx::raw_sql(witness).execute(&mut db).await.unwrap();

    crate::given::admit(&storage, vec![crate::given::task("t", "q")]).await;

    let row = sqlx::query("SELECT setting FROM witness").fetch_one(&mut db).await.unwrap();
    assert_eq!(sqlx::Row::get::<String, _>(&row, "setting"), "on");
    drop(schema);
}
