//! Claims: how they are taken. Keeping and ending them is elsewhere.

use crate::{
    errors::{Sql, corrupt},
    heads::Place,
    rows::{self, millis},
    token::StoreId,
};
use rdq_spi::{Claim, ClaimParams, ClaimQueue, Claimed, QueueName};
use sqlx::{PgConnection, Row as _};
use std::time::Duration;

/// Serves claim calls, whose queues stand in the order of their turns, in one transaction. Each of
/// all queues has a head, behind which tasks are looked for. Answered with each claim call: where
/// the tasks stood that it took.
pub(crate) async fn claim_due(
    db: &mut PgConnection,
    store_id: StoreId,
    claims: &[ClaimParams],
    heads: &[Place],
) -> Sql<Vec<(Claimed, Vec<(QueueName, Place)>)>> {
    let queues: Vec<&ClaimQueue> = claims.iter().flat_map(|claim| &claim.queues).collect();
    let lasts: Vec<i32> = claims
        .iter()
        .scan(0, |last, claim| {
            *last += i32::try_from(claim.queues.len()).unwrap_or(i32::MAX);
            Some(*last)
        })
        .collect();
    let firsts: Vec<i32> = std::iter::once(1).chain(lasts.iter().map(|last| last + 1)).collect();
    let mut rows = sqlx::query(include_str!("queries/claim_due.sql"))
        .bind(queues.iter().map(|queue| queue.queue.as_str()).collect::<Vec<_>>())
        .bind(queues.iter().map(|queue| millis(queue.lease)).collect::<Vec<_>>())
        .bind(queues.iter().map(|queue| millis(queue.lease_max)).collect::<Vec<_>>())
        .bind(heads.iter().map(|head| head.rank).collect::<Vec<_>>())
        .bind(heads.iter().map(|head| head.at).collect::<Vec<_>>())
        .bind(heads.iter().map(|head| head.seq).collect::<Vec<_>>())
        .bind(&firsts[..claims.len()])
        .bind(lasts)
        .bind(
            claims.iter().map(|it| i32::try_from(it.limit).unwrap_or(i32::MAX)).collect::<Vec<_>>(),
        )
        .bind(
            claims
                .iter()
                .map(|it| i64::try_from(it.bytes_max).unwrap_or(i64::MAX))
                .collect::<Vec<_>>(),
        )
        .bind(claims.iter().map(|claim| claim.lease.map(millis)).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.worker_id.as_str()).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    let mut answers: Vec<_> = claims.iter().map(|_| (Claimed::default(), Vec::new())).collect();
    let order = |row: &sqlx::postgres::PgRow| -> Sql<(i64, Option<i32>)> {
        Ok((row.try_get("claim")?, row.try_get("n")?))
    };
    let mut keyed = rows.drain(..).map(|row| Ok((order(&row)?, row))).collect::<Sql<Vec<_>>>()?;
    keyed.sort_by_key(|(key, _)| *key);
    for ((claim, n), row) in keyed {
        let index = usize::try_from(claim - 1).map_err(|_| corrupt("number of a claim"))?;
        let (Some(params), Some(answer)) = (claims.get(index), answers.get_mut(index)) else {
            return Err(corrupt("number of a claim"));
        };
        if n.is_some() {
            let claim = claim_of(&row, store_id, params)?;
            let (at, seq) = (row.try_get("was_due")?, row.try_get("seq")?);
            let place = Place { rank: !claim.task.priority, at, seq };
            answer.1.push((claim.task.queue.clone(), place));
            answer.0.claims.push(claim);
        } else {
            let next_due_in: Option<i64> = row.try_get("next_due_in")?;
            answer.0.next_due_in = next_due_in.map(rows::remaining);
        }
    }
    Ok(answers)
}

fn claim_of(row: &sqlx::postgres::PgRow, store_id: StoreId, params: &ClaimParams) -> Sql<Claim> {
    let task = rows::task(row)?;
    let from = params.queues.iter().find(|from| from.queue == task.queue);
    let from = from.ok_or_else(|| corrupt("queue of a claim"))?;
    let lease: Duration = params.lease.or(task.overrides.lease).unwrap_or(from.lease);
    let generation = row.try_get("generation")?;
    let token = store_id.token(generation);
    Ok(Claim { task, token, generation, lease: lease.min(from.lease_max) })
}
