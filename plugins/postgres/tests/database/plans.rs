//! The plans of claims and resolutions, under every setting and statistic that could mislead them:
//! never more than the limit, in order, by the index.

use crate::given::{admit, claim, completion, is_ignored, store_on, task};
use rdq_spi::{Moment, Storage as _, Timestamp};
use rdq_test_servers::postgres::{self, PostgresServer};
use sqlx::{AssertSqlSafe, Row as _, raw_sql};
use std::time::Duration;

const TASKS: usize = 2_000;

/// What a session is told to avoid. Of what is forced upon the functions, nothing may be left.
const TORTURES: [&[&str]; 4] = [
    &[],
    &["enable_nestloop = off", "enable_hashjoin = on", "enable_mergejoin = off"],
    &["enable_nestloop = off", "enable_hashjoin = off", "enable_material = off"],
    &["enable_indexscan = off", "enable_indexonlyscan = off", "enable_tidscan = off"],
];

#[tokio::test]
async fn no_setting_and_no_stale_statistic_changes_what_a_claim_takes_or_how() {
    if is_ignored(postgres::missing_locally()) {
        return;
    }
    let mut server = PostgresServer::start_with(&[
        "shared_preload_libraries=auto_explain",
        "auto_explain.log_nested_statements=on",
        "autovacuum=off",
    ])
    .await
    .unwrap();
    for torture in TORTURES {
        let (schema, storage, mut db) = store_on(&server).await;
        // Analysed while empty: the planner believes that it still is.
        raw_sql("VACUUM ANALYZE unfinished").execute(&mut db).await.unwrap();
        for setting in torture {
            let set = AssertSqlSafe(format!("ALTER DATABASE postgres SET {setting}"));
            raw_sql(set).execute(&mut db).await.unwrap();
        }
        let tasks: Vec<_> = (0..TASKS).map(nth).collect();
        for batch in tasks.chunks(500) {
            admit(&storage, batch.to_vec()).await;
        }
        drop(storage);
        let explain = "ALTER DATABASE postgres SET auto_explain.log_min_duration = 0";
        raw_sql(explain).execute(&mut db).await.unwrap();
        // Its sessions begin with these settings.
        let storage = crate::given::open(&schema.url()).await;
        let before = server.local().unwrap().output().len();

        let mut seen = Vec::new();
        for limit in [1, 7, 100, 500] {
            let claims = claim(&storage, "q", limit, Duration::from_secs(600)).await;
            assert_eq!(claims.len(), limit as usize, "under {torture:?}");
            let done = storage.resolve(claims.iter().map(completion).collect()).await.unwrap();
            assert!(done.iter().all(Result::is_ok), "{done:?}");
            seen.extend(claims.iter().map(|claim| {
                let due = claim.task.id.as_str()[1..].parse::<usize>().unwrap();
                (!claim.task.priority, due)
            }));
        }

        assert!(seen.is_sorted(), "by priority, then due time, under {torture:?}");
        let log = server.local().unwrap().output().split_off(before);
        assert!(
            log.contains("Index Scan using unfinished_ready on unfinished"),
            "under {torture:?}: {log}"
        );
        for wrong in ["Seq Scan on unfinished", "Hash Join", "Merge Join"] {
            assert!(!log.contains(wrong), "{wrong} under {torture:?}: {log}");
        }
        raw_sql("ALTER DATABASE postgres RESET ALL").execute(&mut db).await.unwrap();
    }
}

/// Of three priorities, due in the order of their numbers.
fn nth(n: usize) -> rdq_spi::NewTask {
    let due = Timestamp::from_millis(i64::try_from(n).unwrap());
    let mut task = task(format!("t{n:05}"), "q");
    (task.priority, task.due) = (i32::try_from(n % 3).unwrap(), Moment::At(due));
    task
}

#[tokio::test]
async fn a_claim_goes_on_behind_its_head_and_from_the_start_where_there_is_not_enough() {
    if is_ignored(postgres::missing()) {
        return;
    }
    let server = PostgresServer::shared().await.unwrap();
    let (_schema, storage, mut db) = store_on(server).await;
    let tasks = (0..10).map(|n| rdq_spi::NewTask { priority: 0, ..nth(n) }).collect();
    admit(&storage, tasks).await;
    // The head stands behind the task that was due at 4.
    let claim = "SELECT was_due FROM claim_batch(
        ARRAY['q'], ARRAY[60000::bigint], ARRAY[60000::bigint], ARRAY[~0], ARRAY[4::bigint],
        ARRAY[9223372036854775807], ARRAY[$1], ARRAY[1000000::bigint], ARRAY[NULL::bigint],
        ARRAY['me']
    ) WHERE claim IS NOT NULL";
    for (limit, expected) in [(3, vec![5, 6, 7]), (4, vec![8, 9, 0, 1]), (9, vec![2, 3, 4])] {
        let rows = sqlx::query(claim).bind(limit).fetch_all(&mut db).await.unwrap();
        let due: Vec<i64> = rows.iter().map(|row| row.get("was_due")).collect();
        assert_eq!(due, expected, "{limit} at most");
    }
}
