//! The ledger: one row a mutation, which is the place that others of its scope wait for until the
//! transaction of its effects has ended.

use crate::{
    errors::{Sql, corrupt},
    rows,
};
use bytes::Bytes;
use rdq_spi::{
    Applied, Mutation, MutationKind, MutationScope, MutationStatus, NewMutation, PruneParams,
    Pruned, Result, StorageError, Timestamp, answers,
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};

/// Records a mutation, as one without effects, if its scope has no record; else who observes it gets
/// what is recorded.
pub(crate) async fn observe(db: &mut PgConnection, mutation: &NewMutation) -> Sql<Result<Applied>> {
    let NewMutation { scope, kind, eligibility_claim, fingerprint, status, response } = mutation;
    let found = sqlx::query(include_str!("../queries/observe.sql"))
        .bind(scope.subject.as_str())
        .bind(scope.operation.as_str())
        .bind(scope.key.as_str())
        .bind(kind.as_str())
        .bind(&eligibility_claim[..])
        .bind(&fingerprint[..])
        .bind(status.as_str())
        .bind(&response[..])
        .bind(answers::encode(&[]))
        .fetch_optional(db)
        .await?;
    Ok(match found {
        Some(row) => {
            let mutation = Box::new(recorded(&row, scope.clone())?);
            Err(StorageError::MutationObserved { mutation })
        }
        None => Ok(Applied::Observed),
    })
}

/// Adds what came of the effects to the record that their transaction made.
pub(crate) async fn keep_answers(
    db: &mut PgConnection,
    scope: &MutationScope,
    effects: &[Applied],
) -> Sql<()> {
    if effects.is_empty() {
        return Ok(());
    }
    let kept = sqlx::query(include_str!("../queries/keep_answers.sql"))
        .bind(scope.subject.as_str())
        .bind(scope.operation.as_str())
        .bind(scope.key.as_str())
        .bind(answers::encode(effects))
        .execute(db)
        .await?;
    if kept.rows_affected() == 1 { Ok(()) } else { Err(corrupt("mutation")) }
}

/// What is recorded of a mutation.
pub(crate) async fn get(db: &mut PgConnection, scope: &MutationScope) -> Sql<Option<Mutation>> {
    let row = sqlx::query(include_str!("../queries/get_mutation.sql"))
        .bind(scope.subject.as_str())
        .bind(scope.operation.as_str())
        .bind(scope.key.as_str())
        .fetch_optional(db)
        .await?;
    row.map(|row| recorded(&row, scope.clone())).transpose()
}

fn recorded(row: &PgRow, scope: MutationScope) -> Sql<Mutation> {
    let bytes = |column| row.try_get(column).map(Bytes::copy_from_slice);
    let fingerprint: &[u8] = row.try_get("fingerprint")?;
    let status = MutationStatus::from_stored(row.try_get("status")?);
    let first = NewMutation {
        scope,
        kind: MutationKind::stored(row.try_get::<&str, _>("kind")?),
        eligibility_claim: bytes("eligibility_claim")?,
        fingerprint: fingerprint.try_into().map_err(|_| corrupt("mutation's fingerprint"))?,
        status: status.ok_or_else(|| corrupt("mutation's status"))?,
        response: bytes("response")?,
    };
    let answers = answers::decode(row.try_get("answers")?);
    Ok(Mutation {
        first,
        answers: answers.map_err(|_| corrupt("mutation's answers"))?,
        observed_at: Timestamp::from_millis(row.try_get("observed_at")?),
    })
}

/// Removes the oldest mutations.
pub(crate) async fn prune(db: &mut PgConnection, params: PruneParams) -> Sql<Pruned> {
    let PruneParams { older_than, limit } = params;
    let removed = sqlx::query(include_str!("../queries/prune.sql"))
        .bind(rows::millis(older_than))
        .bind(i64::from(limit))
        .execute(db)
        .await?;
    let count = removed.rows_affected();
    Ok(Pruned { count, more: count >= u64::from(limit) })
}
