//! What is answered without writing: tasks, pages, counts, live claims. Each call reads a bounded
//! number of rows, but for counts, which walk entries of an index.

use crate::{
    dead_letters::bind_filter,
    errors::Sql,
    rows::{self, remaining, status_number},
    token::StoreId,
};
use rdq_spi::{
    ClaimRef, DlqListParams, ListParams, Page, QueueName, QueueStats, Task, TaskId,
    keyset::{self, List},
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use std::time::Duration;

/// One call looks at so many tasks at most; a page that found little ends there.
const EXAMINED_MAX: i64 = 10_000;

/// One task, whole.
pub(crate) async fn get(db: &mut PgConnection, id: &TaskId) -> Sql<Option<Task>> {
    let row =
        sqlx::query(include_str!("queries/get.sql")).bind(id.as_str()).fetch_optional(db).await?;
    row.as_ref().map(whole).transpose()
}

fn whole(row: &PgRow) -> Sql<Task> {
    let mut task = rows::task(row)?;
    task.attempts.extend(rows::plain_success(row)?);
    Ok(task)
}

/// A page of a queue's tasks that were admitted before number `before`.
pub(crate) async fn list(db: &mut PgConnection, params: &ListParams, before: i64) -> Sql<Page> {
    let ListParams { queue, status, limit, bytes_max, include_attempts, position: _ } = params;
    // Without a filter, one more than the page holds says whether there is more.
    let examined = if status.is_some() { EXAMINED_MAX } else { i64::from(*limit) + 1 };
    let rows = sqlx::query(include_str!("queries/list.sql"))
        .bind(queue.as_str())
        .bind(before)
        .bind(status.map(status_number))
        .bind(i64::from(*limit))
        .bind(i64::try_from(*bytes_max).unwrap_or(i64::MAX))
        .bind(include_attempts)
        .bind(examined)
        .fetch_all(db)
        .await?;
    page(&rows, List::Tasks, queue, if *include_attempts { whole } else { rows::task })
}

/// A page of a queue's dead letters that died before number `before`.
pub(crate) async fn dlq_list(
    db: &mut PgConnection,
    params: &DlqListParams,
    before: i64,
) -> Sql<Page> {
    let DlqListParams { queue, filter, limit, bytes_max, include_attempts, position: _ } = params;
    let examined = if filter.is_empty() { i64::from(*limit) + 1 } else { EXAMINED_MAX };
    let query = sqlx::query(include_str!("queries/dlq_list.sql")).bind(queue.as_str()).bind(before);
    let rows = bind_filter(query, filter)
        .bind(i64::from(*limit))
        .bind(i64::try_from(*bytes_max).unwrap_or(i64::MAX))
        .bind(include_attempts)
        .bind(examined)
        .fetch_all(db)
        .await?;
    page(&rows, List::DeadLetters, queue, rows::task)
}

/// Each row says where to go on; one without an id holds nothing else.
fn page(rows: &[PgRow], list: List, queue: &QueueName, read: fn(&PgRow) -> Sql<Task>) -> Sql<Page> {
    let mut page = Page::default();
    for row in rows {
        let next: Option<i64> = row.try_get("next")?;
        page.next = next.map(|before| keyset::encode(list, queue, before));
        if row.try_get::<Option<&str>, _>("id")?.is_some() {
            page.tasks.push(read(row)?);
        }
    }
    Ok(page)
}

/// How much is left of each of these claims.
pub(crate) async fn live_claims(
    db: &mut PgConnection,
    store_id: StoreId,
    claims: &[ClaimRef],
) -> Sql<Vec<Option<Duration>>> {
    let rows = sqlx::query(include_str!("queries/live_claims.sql"))
        .bind(claims.iter().map(|claim| claim.task_id.as_str()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| store_id.generation(&claim.token)).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    rows.iter().map(|row| Ok(row.try_get::<Option<i64>, _>("remaining")?.map(remaining))).collect()
}

/// A queue's counts.
pub(crate) async fn stats(db: &mut PgConnection, queue: &QueueName) -> Sql<QueueStats> {
    let row =
        sqlx::query(include_str!("queries/stats.sql")).bind(queue.as_str()).fetch_one(db).await?;
    let count = |column: &str| -> Sql<u64> { Ok(row.try_get::<i64, _>(column)?.unsigned_abs()) };
    Ok(QueueStats {
        ready: count("ready")?,
        delayed: count("delayed")?,
        in_flight: count("in_flight")?,
        lapsed: count("lapsed")?,
        dead: count("dead")?,
        succeeded: count("succeeded")?,
        cancelled: count("cancelled")?,
        oldest_pending_age: row.try_get::<Option<i64>, _>("oldest_age")?.map(remaining),
    })
}
