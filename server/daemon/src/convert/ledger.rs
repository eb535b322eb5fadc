//! Mutations and their records.

use super::{
    coordination::named,
    request::positive,
    transaction::{Asked, effects, results},
};
use crate::status::Refusal;
use rdq_engine::{Execution, TransactionOperation};
use rdq_proto::{time, v1};
use rdq_spi::{
    Mutation, MutationKey, MutationKind, MutationScope, MutationStatus, NewMutation, OperationName,
    SubjectName, answers,
};
use std::time::Duration;

pub(crate) fn scope(from: Option<v1::MutationScope>) -> Result<MutationScope, Refusal> {
    let missing = || Refusal::invalid("scope", "`scope` is required");
    let v1::MutationScope { subject, operation, key } = from.ok_or_else(missing)?;
    Ok(MutationScope {
        subject: named("scope.subject", SubjectName::new(subject))?,
        operation: named("scope.operation", OperationName::new(operation))?,
        key: named("scope.key", MutationKey::new(key))?,
    })
}

/// A mutation, its effects, and what answers to them need.
pub(crate) fn execute(
    from: v1::ExecuteRequest,
) -> Result<(NewMutation, Vec<TransactionOperation>, Vec<Asked>), Refusal> {
    let status = match v1::MutationStatus::try_from(from.status) {
        Ok(v1::MutationStatus::Accepted) => MutationStatus::Accepted,
        Ok(v1::MutationStatus::Rejected) => MutationStatus::Rejected,
        Ok(v1::MutationStatus::Unspecified) | Err(_) => {
            return Err(Refusal::invalid("status", "`status` must be ACCEPTED or REJECTED"));
        }
    };
    let fingerprint = from.request_fingerprint[..].try_into().map_err(|_| {
        let message = "`request_fingerprint` must have 32 bytes";
        Refusal::invalid("request_fingerprint", message)
    })?;
    let mutation = NewMutation {
        scope: scope(from.scope)?,
        kind: named("kind", MutationKind::new(from.kind))?,
        eligibility_claim: from.eligibility_claim,
        fingerprint,
        status,
        response: from.response,
    };
    let (operations, asked) = effects(from.operations)?;
    Ok((mutation, operations, asked))
}

/// The answer to a mutation that brought this, if it is the first.
pub(crate) fn execute_response(
    execution: Execution,
    first: (MutationStatus, bytes::Bytes),
    asked: Vec<Asked>,
) -> Result<v1::ExecuteResponse, Refusal> {
    use v1::MutationDisposition as Disposition;
    let (disposition, (status, response), results) = match execution {
        Execution::First(applied) => (Disposition::First, first, results(asked, applied)?),
        Execution::Replay(found) => {
            (Disposition::Replay, (found.first.status, found.first.response), Vec::new())
        }
        Execution::Conflict => {
            (Disposition::Conflict, (MutationStatus::Rejected, bytes::Bytes::new()), Vec::new())
        }
    };
    Ok(v1::ExecuteResponse {
        disposition: disposition.into(),
        status: wire_status(status).into(),
        response,
        results,
    })
}

fn wire_status(status: MutationStatus) -> v1::MutationStatus {
    match status {
        MutationStatus::Accepted => v1::MutationStatus::Accepted,
        MutationStatus::Rejected => v1::MutationStatus::Rejected,
    }
}

pub(crate) fn mutation(from: Mutation) -> v1::Mutation {
    let Mutation { first, answers, observed_at } = from;
    let MutationScope { subject, operation, key } = first.scope;
    v1::Mutation {
        scope: Some(v1::MutationScope {
            subject: subject.into(),
            operation: operation.into(),
            key: key.into(),
        }),
        kind: first.kind.into(),
        eligibility_claim: first.eligibility_claim,
        request_fingerprint: first.fingerprint.to_vec().into(),
        status: wire_status(first.status).into(),
        response: first.response,
        observed_at: Some(time::timestamp(observed_at.millis())),
        answers: answers::encode(&answers).into(),
    }
}

/// The age of what is pruned.
pub(crate) fn older_than(value: Option<&prost_types::Duration>) -> Result<Duration, Refusal> {
    let missing = || Refusal::invalid("older_than", "`older_than` is required");
    positive("older_than", value.ok_or_else(missing)?)
}
