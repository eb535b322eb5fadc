//! The ledger: one row a mutation, written in the transaction of its effects.

use crate::{
    errors::{Sql, corrupt},
    reader::Snapshot,
    rows,
    statements::text,
    transaction::Tx,
};
use rdq_spi::{
    Applied, Mutation, MutationKind, MutationScope, MutationStatus, NewMutation, PruneParams,
    Pruned, Result, StorageError, Timestamp, answers,
};
use rusqlite::{OptionalExtension as _, Row, params};

/// Whether the scope has no record yet; else who observes it gets what is recorded.
pub(super) fn observe(tx: &Tx<'_, '_>, mutation: &NewMutation) -> Sql<Result<Applied>> {
    Ok(match tx.view().mutation(&mutation.scope)? {
        Some(found) => Err(StorageError::MutationObserved { mutation: Box::new(found) }),
        None => Ok(Applied::Observed),
    })
}

/// Records a mutation whose scope has no record, with what came of it.
pub(super) fn record(tx: &mut Tx<'_, '_>, first: &NewMutation, answers: &[Applied]) -> Sql<()> {
    let MutationScope { subject, operation, key } = &first.scope;
    let insert = &mut tx.sql.coordination.insert_mutation;
    insert.execute(params![
        subject.as_str(),
        operation.as_str(),
        key.as_str(),
        first.kind.as_str(),
        &first.eligibility_claim[..],
        first.fingerprint,
        first.status.as_str(),
        &first.response[..],
        answers::encode(answers),
        tx.now.millis(),
    ])?;
    Ok(())
}

/// Removes the oldest mutations.
pub(super) fn prune(tx: &mut Tx<'_, '_>, params: PruneParams) -> Sql<Pruned> {
    let PruneParams { older_than, limit } = params;
    let age = i64::try_from(older_than.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    let before = tx.now.millis().saturating_sub(age);
    let count = tx.sql.coordination.prune_mutations.execute(params![before, limit])? as u64;
    Ok(Pruned { count, more: count >= u64::from(limit) })
}

impl Snapshot<'_> {
    /// What is recorded of a mutation.
    pub(crate) fn mutation(&self, scope: &MutationScope) -> Sql<Option<Mutation>> {
        let MutationScope { subject, operation, key } = scope;
        let mut sql = self.db.prepare_cached(text!(mutation))?;
        let scoped = params![subject.as_str(), operation.as_str(), key.as_str()];
        sql.query_row(scoped, |row| read(row, scope)).optional()
    }
}

fn read(row: &Row<'_>, scope: &MutationScope) -> Sql<Mutation> {
    let kind: String = row.get(0)?;
    let status = MutationStatus::from_stored(row.get_ref(3)?.as_str()?);
    let first = NewMutation {
        scope: scope.clone(),
        kind: MutationKind::stored(kind),
        eligibility_claim: rows::bytes(row, 1)?.unwrap_or_default(),
        fingerprint: row.get(2)?,
        status: status.ok_or_else(|| corrupt("mutation's status"))?,
        response: rows::bytes(row, 4)?.unwrap_or_default(),
    };
    let answers = answers::decode(row.get_ref(5)?.as_blob()?);
    Ok(Mutation {
        first,
        answers: answers.map_err(|_| corrupt("mutation's answers"))?,
        observed_at: Timestamp::from_millis(row.get(6)?),
    })
}
