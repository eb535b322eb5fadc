//! The ledger: one document a mutation, made by the transaction of its effects before any of them.
//! Of two that make one, the later one fails at once and is run again, until the record of the
//! other is with the majority, or the other has failed.

use crate::{
    changes::{COMMAND_CHANGES_MAX, first_error, number},
    database::{Db, literal},
    document::{binary, bytes, date, instant},
    errors::{Access, Failure, Step, corrupt},
    numbers,
    sweeps::earlier,
};
use mongodb::{
    IndexModel,
    bson::{Binary, Bson, DateTime, Document, doc},
    options::IndexOptions,
};
use rdq_spi::{
    Applied, Mutation, MutationKind, MutationScope, MutationStatus, NewMutation, Operation,
    PruneParams, Pruned, Rejected, Result, StorageError, answers,
};
use serde::Deserialize;

pub(crate) const COLLECTION: &str = "mutations";

#[derive(Debug, Deserialize)]
struct MutationDocument {
    kind: String,
    eligibility_claim: Binary,
    fingerprint: Binary,
    status: String,
    response: Binary,
    /// What the other operations of its commit were answered, as the SPI writes it.
    answers: Binary,
    observed_at: DateTime,
}

impl MutationDocument {
    fn into_mutation(self, scope: MutationScope) -> Step<Mutation> {
        let fingerprint = self.fingerprint.bytes.try_into();
        let status = MutationStatus::from_stored(&self.status);
        let answers = answers::decode(&self.answers.bytes);
        Ok(Mutation {
            first: NewMutation {
                scope,
                kind: MutationKind::stored(self.kind),
                eligibility_claim: bytes(Some(self.eligibility_claim)),
                fingerprint: fingerprint.map_err(|_| corrupt("mutation's fingerprint"))?,
                status: status.ok_or_else(|| corrupt("mutation's status"))?,
                response: bytes(Some(self.response)),
            },
            answers: answers.map_err(|_| corrupt("mutation's answers"))?,
            observed_at: instant(self.observed_at),
        })
    }
}

/// The oldest are pruned first.
pub(crate) fn age() -> IndexModel {
    let options = IndexOptions::builder().name("age".to_owned());
    IndexModel::builder().keys(doc! { "observed_at": 1 }).options(options.build()).build()
}

/// Documents compare part by part, each with its length: no two scopes have one. The parts are bytes,
/// not text: the server cuts a long text that is a duplicate in the middle of a character when it says
/// so, and nobody could read its answer.
fn id_of(MutationScope { subject, operation, key }: &MutationScope) -> Document {
    let [subject, operation, key] =
        [subject.as_str(), operation.as_str(), key.as_str()].map(|part| binary(part.as_bytes()));
    doc! { "s": subject, "o": operation, "k": key }
}

/// Makes the record of a mutation within a transaction, to be completed by [`complete`]. `before` is
/// what the transaction observed so far. A record that is not its own makes the run a lost one.
pub(super) async fn observe(
    tx: &Db,
    first: &NewMutation,
    before: &mut Vec<Mutation>,
) -> Step<Result<Applied>> {
    if let Some(found) = before.iter().find(|mutation| mutation.first.scope == first.scope) {
        return Ok(Err(StorageError::MutationObserved { mutation: Box::new(found.clone()) }));
    }
    let reply = tx
        .write(doc! {
            "findAndModify": COLLECTION,
            // It matches no record: one that is there is a duplicate.
            "query": { "_id": id_of(&first.scope), "observed_at": { "$exists": false } },
            "update": [{ "$set": {
                "kind": literal(first.kind.as_str()),
                "eligibility_claim": literal(binary(&first.eligibility_claim)),
                "fingerprint": literal(binary(&first.fingerprint)),
                "status": literal(first.status.as_str()),
                "response": literal(binary(&first.response)),
                "answers": literal(binary(&answers::encode(&[]))),
                "observed_at": { "$max": ["$$NOW", date(tx.clock.latest())] },
            } }],
            "upsert": true,
            "new": true,
            "fields": { "observed_at": 1 },
        })
        .await?;
    let made = reply.get_document("value").ok().and_then(|value| value.get("observed_at"));
    let Some(Bson::DateTime(observed_at)) = made else {
        return Err(corrupt("the server's answer"));
    };
    let observed_at = tx.clock.advance(instant(*observed_at));
    before.push(Mutation { first: first.clone(), answers: Vec::new(), observed_at });
    Ok(Ok(Applied::Observed))
}

/// Adds to a record that the transaction made what came of the other operations.
pub(super) async fn complete(tx: &Db, mutation: &mut Mutation, effects: &[Applied]) -> Step<()> {
    if effects.is_empty() {
        return Ok(());
    }
    mutation.answers = effects.to_vec();
    let update = doc! {
        "q": { "_id": id_of(&mutation.first.scope) },
        "u": { "$set": { "answers": binary(&answers::encode(effects)) } },
    };
    tx.write(doc! { "update": COLLECTION, "updates": [update] }).await.map(|_| ())
}

/// Whether a run of these calls lost because a mutation of theirs was observed: answers with the
/// record, which the majority has.
pub(super) async fn observed_before(db: &Db, calls: &[Vec<Operation>]) -> Step<Option<Rejected>> {
    let mut before = 0;
    for operations in calls {
        if let [Operation::Observe(asked), ..] = &operations[..]
            && let Some(found) = mutation(db, &asked.scope).await?
        {
            let error = StorageError::MutationObserved { mutation: Box::new(found) };
            return Ok(Some(Rejected { index: Some(before), error }));
        }
        before += operations.len();
    }
    Ok(None)
}

/// What is recorded of a mutation.
pub(super) async fn mutation(db: &Db, scope: &MutationScope) -> Step<Option<Mutation>> {
    let wanted = vec![doc! { "$match": { "_id": id_of(scope) } }];
    let found: Vec<MutationDocument> = db.read_from(COLLECTION, wanted).await?;
    found.into_iter().next().map(|found| found.into_mutation(scope.clone())).transpose()
}

/// Removes the oldest mutations, as many as one command holds at most.
pub(super) async fn prune(db: &Db, params: PruneParams) -> Step<Pruned> {
    #[derive(Deserialize)]
    struct Found {
        #[serde(rename = "_id")]
        id: Document,
    }
    let PruneParams { older_than, limit } = params;
    let limit = (limit as usize).min(COMMAND_CHANGES_MAX);
    let is_old = doc! { "$lt": date(earlier(numbers::now(db).await?, older_than)) };
    let pipeline = vec![
        doc! { "$match": { "observed_at": &is_old } },
        doc! { "$sort": { "observed_at": 1 } },
        doc! { "$limit": i64::try_from(limit + 1).unwrap_or(i64::MAX) },
        doc! { "$project": { "_id": 1 } },
    ];
    let found: Vec<Found> = db.read_from(COLLECTION, pipeline).await?;
    if found.is_empty() {
        return Ok(Pruned::default());
    }
    let more = found.len() > limit;
    let ids: Vec<_> = found.into_iter().take(limit).map(|found| found.id).collect();
    // Pruned by another, and observed again, it is young.
    let deletes = vec![doc! { "q": { "_id": { "$in": ids }, "observed_at": is_old }, "limit": 0 }];
    let reply = db.write(doc! { "delete": COLLECTION, "deletes": deletes }).await?;
    let count = u64::try_from(number(&reply, "n")).unwrap_or_default();
    match first_error(&reply, Access::Write) {
        None => Ok(Pruned { count, more }),
        // It stopped there, and goes on with the next step.
        Some(Failure::Contention) => Ok(Pruned { count, more: true }),
        Some(failure) => Err(failure.after_a_write()),
    }
}
