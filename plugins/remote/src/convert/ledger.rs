//! Mutations and their records.

use super::{Broken, coordination::required, count, on_wire};
use rdq_proto::{time, v1};
use rdq_spi::{
    Mutation, MutationKey, MutationKind, MutationScope, MutationStatus, NewMutation, OperationName,
    PruneParams, Pruned, SubjectName, answers,
};

pub(crate) fn scope(scope: MutationScope) -> v1::MutationScope {
    let MutationScope { subject, operation, key } = scope;
    v1::MutationScope { subject: subject.into(), operation: operation.into(), key: key.into() }
}

pub(crate) fn execute_request(
    mutation: NewMutation,
    operations: Vec<v1::Operation>,
) -> v1::ExecuteRequest {
    let status = match mutation.status {
        MutationStatus::Accepted => v1::MutationStatus::Accepted,
        MutationStatus::Rejected => v1::MutationStatus::Rejected,
    };
    v1::ExecuteRequest {
        scope: Some(scope(mutation.scope)),
        kind: mutation.kind.into(),
        eligibility_claim: mutation.eligibility_claim,
        request_fingerprint: mutation.fingerprint.to_vec().into(),
        operations,
        status: status.into(),
        response: mutation.response,
    }
}

pub(crate) fn mutation(from: Option<v1::Mutation>) -> Result<Mutation, Broken> {
    let from = from.ok_or(Broken("has no mutation"))?;
    let status = match from.status() {
        v1::MutationStatus::Accepted => MutationStatus::Accepted,
        v1::MutationStatus::Rejected => MutationStatus::Rejected,
        v1::MutationStatus::Unspecified => return Err(Broken("has a mutation without a status")),
    };
    let scope = from.scope.ok_or(Broken("has a mutation without a scope"))?;
    let fingerprint = from.request_fingerprint[..].try_into();
    let answers = answers::decode(&from.answers);
    Ok(Mutation {
        observed_at: required(from.observed_at.as_ref(), "has a mutation without observed_at")?,
        answers: answers.map_err(|_| Broken("has a mutation whose answers are unreadable"))?,
        first: NewMutation {
            scope: MutationScope {
                subject: SubjectName::stored(scope.subject),
                operation: OperationName::stored(scope.operation),
                key: MutationKey::stored(scope.key),
            },
            kind: MutationKind::stored(from.kind),
            eligibility_claim: from.eligibility_claim,
            fingerprint: fingerprint.map_err(|_| Broken("has a fingerprint of another length"))?,
            status,
            response: from.response,
        },
    })
}

pub(crate) fn prune_request(params: PruneParams) -> v1::PruneMutationsRequest {
    let PruneParams { older_than, limit } = params;
    let older_than = Some(time::duration(older_than));
    v1::PruneMutationsRequest { older_than, limit: Some(on_wire(limit)) }
}

pub(crate) fn pruned(response: &v1::PruneMutationsResponse) -> Pruned {
    Pruned { count: count(response.count), more: response.more }
}
