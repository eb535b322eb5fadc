//! Steps over dead letters, newest first: redrives and purges. A step remembers how far down the
//! order of deaths it came, so what dies while it runs is above it and not of its selection.

use crate::{errors::Sql, rows::millis};
use rdq_spi::{
    DlqFilter, PurgeParams, QueueName, RedriveParams, Selection, Step, Timestamp,
    keyset::{self, List},
};
use sqlx::{
    PgConnection, Postgres, Row as _,
    postgres::{PgArguments, PgRow},
    query::Query,
};

type PgQuery<'q> = Query<'q, Postgres, PgArguments>;

/// Makes dead letters pending, of those that died before number `before`.
pub(crate) async fn redrive(
    db: &mut PgConnection,
    params: &RedriveParams,
    before: i64,
) -> Sql<Step> {
    let RedriveParams { queue, selection, dry_run, limit, delay, spacing, position: _ } = params;
    let (ids, filter) = parts(selection);
    // Of no more than there may be, where a limit is larger than any queue.
    let longest = ids.as_ref().map_or(EXAMINED_MAX, Vec::len).min(*limit as usize);
    let mut due_in = Vec::with_capacity(longest);
    let mut next = *delay;
    for _ in 0..longest {
        due_in.push(millis(next));
        next = next.saturating_add(*spacing);
    }
    let query = sqlx::query(include_str!("queries/redrive.sql")).bind(queue.as_str()).bind(ids);
    let row = bind_filter(query, &filter)
        .bind(before)
        .bind(i32::try_from(*limit).unwrap_or(i32::MAX))
        .bind(dry_run)
        .bind(due_in)
        .fetch_one(db)
        .await?;
    step(&row, queue)
}

/// Removes dead letters, of those that died before number `before`.
pub(crate) async fn purge(db: &mut PgConnection, params: &PurgeParams, before: i64) -> Sql<Step> {
    let PurgeParams { queue, selection, dry_run, limit, position: _ } = params;
    let (ids, filter) = parts(selection);
    let query = sqlx::query(include_str!("queries/purge.sql")).bind(queue.as_str()).bind(ids);
    let row = bind_filter(query, &filter)
        .bind(before)
        .bind(i32::try_from(*limit).unwrap_or(i32::MAX))
        .bind(dry_run)
        .fetch_one(db)
        .await?;
    step(&row, queue)
}

/// What `select_dead` looks at in one step.
const EXAMINED_MAX: usize = 2_000;

fn parts(selection: &Selection) -> (Option<Vec<&str>>, DlqFilter) {
    match selection {
        Selection::Ids(ids) => {
            (Some(ids.iter().map(rdq_spi::TaskId::as_str).collect()), DlqFilter::default())
        }
        Selection::Filter(filter) => (None, filter.clone()),
        Selection::All => (None, DlqFilter::default()),
    }
}

/// Binds what a statement takes of a filter, in the order in which all of them take it.
pub(crate) fn bind_filter<'q>(query: PgQuery<'q>, filter: &'q DlqFilter) -> PgQuery<'q> {
    let instant = |at: Option<Timestamp>| at.map(Timestamp::millis);
    query
        .bind(&filter.error_type)
        .bind(&filter.handler_ref)
        .bind(instant(filter.dead_from))
        .bind(instant(filter.dead_to))
}

fn step(row: &PgRow, queue: &QueueName) -> Sql<Step> {
    let count: i64 = row.try_get("count")?;
    let next: Option<i64> = row.try_get("next")?;
    Ok(Step {
        count: count.unsigned_abs(),
        next: next.map(|before| keyset::encode(List::DeadLetters, queue, before)),
    })
}
