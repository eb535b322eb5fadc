//! Races between what ends a task and what brings it back, with each side held where the other passes.

use crate::given::{LONG, admit, blocks, claim, completion, is_ignored, store_on, task};
use rdq_spi::{Outcome, Resolution, Storage as _};
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{Connection as _, Row as _, raw_sql};

#[tokio::test]
async fn a_cancellation_that_meets_a_redriven_task_ends_it_or_leaves_it_to_its_claim() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let (schema, storage, mut watcher) = store_on(PostgresServer::shared().await.unwrap()).await;
    admit(&storage, vec![task("t", "q")]).await;
    let mut db = schema.connect().await;
    let claimed = sqlx::query("SELECT claim_token FROM claim_due(ARRAY['q'], 'me')");
    let token: Vec<u8> = claimed.fetch_one(&mut db).await.unwrap().get(0);
    // Whoever says so waits for a lock before it ends anything, when it has looked.
    raw_sql(
        "CREATE FUNCTION halt() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF current_setting('test.halts', true) = 'on' THEN
                PERFORM pg_advisory_xact_lock(hashtextextended(current_schema, 0));
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER halt BEFORE DELETE ON unfinished EXECUTE FUNCTION halt();",
    )
    .execute(&mut watcher)
    .await
    .unwrap();
    let mut gate = schema.connect().await;
    let mut closed = gate.begin().await.unwrap();
    let close = "SELECT pg_advisory_xact_lock(hashtextextended(current_schema, 0))";
    raw_sql(close).execute(&mut *closed).await.unwrap();
    let mut back = db.begin().await.unwrap();
    let die = sqlx::query("SELECT dead_letter('t', $1, 'http.400', 'bad')").bind(&token);
    die.execute(&mut *back).await.unwrap();
    let redrive = "SELECT count FROM redrive_step(
        'q', NULL, NULL, NULL, NULL, NULL, 9223372036854775807, 1, false, ARRAY[0::bigint])";
    let redriven: i64 = sqlx::query_scalar(redrive).fetch_one(&mut *back).await.unwrap();
    assert_eq!(redriven, 1);
    let mut canceller = schema.connect().await;
    let cancelling = tokio::spawn(async move {
        raw_sql("SET test.halts = on").execute(&mut canceller).await.unwrap();
        let cancel = "SELECT verdict FROM cancel_batch(ARRAY['t'])";
        sqlx::query_scalar::<_, i16>(cancel).fetch_one(&mut canceller).await.unwrap()
    });
    blocks(&mut back, &mut watcher).await;

    // It comes back as another row, which the cancellation was not waiting for.
    back.commit().await.unwrap();
    blocks(&mut closed, &mut watcher).await;
    let claims = claim(&storage, "q", 1, LONG).await;
    let forget = |claim| {
        let mut done: Resolution = completion(claim);
        if let Outcome::Succeed { forget, .. } = &mut done.outcome {
            *forget = true;
        }
        done
    };
    let done = storage.resolve(claims.iter().map(forget).collect()).await.unwrap();
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    closed.commit().await.unwrap();

    let is_cancelled = cancelling.await.unwrap() == 0;
    assert_eq!(is_cancelled, claims.is_empty(), "one of both had it");
}
