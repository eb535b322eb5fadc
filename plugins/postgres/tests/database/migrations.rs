//! Schemas are made once however many servers start, and are not touched where they are not ours.

use crate::{
    given::{admit, is_ignored, open, task},
    schema::Schema,
};
use rdq_postgres::{OpenError, PostgresOptions, PostgresStorage};
use rdq_spi::Storage as _;
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, raw_sql};

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
    let ready = storages[0].stats(crate::given::queue("q")).await.unwrap().ready;
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
