//! Scene words of the ledger.

#[allow(clippy::wildcard_imports, reason = "one vocabulary in several files")]
use super::*;
use rdq_spi::{
    Applied, Ledger, Mutation, MutationKey, MutationKind, MutationScope, MutationStatus,
    NewMutation, Operation, OperationName, PruneParams, Rejected, SubjectName,
};

/// The faculty, which the story needs.
pub(crate) fn ledger(store: &dyn Storage) -> &dyn Ledger {
    store.ledger().expect("a ledger")
}

/// A scope that the story knows to be one.
pub(crate) fn scope(subject: &str, operation: &str, key: &str) -> MutationScope {
    MutationScope {
        subject: SubjectName::new(subject).expect("a subject"),
        operation: OperationName::new(operation).expect("an operation"),
        key: MutationKey::new(key).expect("a key"),
    }
}

/// A scope that nobody else uses.
pub(crate) fn some_scope() -> MutationScope {
    scope("customer", "transfer", &format!("key-{:016x}", Random::any_seed()))
}

/// A kind that the story knows to be one.
pub(crate) fn kind(text: &str) -> MutationKind {
    MutationKind::new(text).expect("a kind")
}

/// A mutation that is accepted.
pub(crate) fn accepted(scope: &MutationScope, response: impl Into<Bytes>) -> NewMutation {
    NewMutation {
        scope: scope.clone(),
        kind: kind("order"),
        eligibility_claim: Bytes::from_static(b"generation 7"),
        fingerprint: [7; 32],
        status: MutationStatus::Accepted,
        response: response.into(),
    }
}

/// One that is not.
pub(crate) fn rejected(scope: &MutationScope, response: impl Into<Bytes>) -> NewMutation {
    NewMutation { status: MutationStatus::Rejected, ..accepted(scope, response) }
}

/// Observes a mutation with these effects.
pub(crate) async fn observe(
    store: &dyn Storage,
    mutation: &NewMutation,
    effects: Vec<Operation>,
) -> Result<Vec<Applied>, Rejected> {
    commit(store, observing(mutation, effects)).await
}

/// The operations that observe a mutation with these effects.
pub(crate) fn observing(mutation: &NewMutation, effects: Vec<Operation>) -> Vec<Operation> {
    let mut operations = vec![Operation::Observe(mutation.clone())];
    operations.extend(effects);
    operations
}

/// What is recorded.
pub(crate) async fn mutation(store: &dyn Storage, scope: &MutationScope) -> Option<Mutation> {
    ledger(store).mutation(scope.clone()).await.expect("mutation")
}

/// The record that an observation which was not the first is answered with.
pub(crate) fn observed_before(answer: Result<Vec<Applied>, Rejected>) -> Mutation {
    match answer {
        Err(Rejected { index: Some(0), error: StorageError::MutationObserved { mutation } }) => {
            *mutation
        }
        other => panic!("it was observed before: {other:?}"),
    }
}

/// Prunes in as many steps as it takes, and answers how many mutations went.
pub(crate) async fn prune_all(store: &dyn Storage, older_than: Duration, limit: u32) -> u64 {
    let mut count = 0;
    loop {
        let step = ledger(store).prune(PruneParams { older_than, limit }).await.expect("prune");
        assert!(step.count <= u64::from(limit), "{step:?} of {limit}");
        assert!(step.count > 0 || !step.more, "{step:?} comes to no end");
        count += step.count;
        if !step.more {
            return count;
        }
    }
}
