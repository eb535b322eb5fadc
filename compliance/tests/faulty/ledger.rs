//! The memory plugin's ledger, with the mistake on the way in or out.

use super::{Fault, storage::Faulty};
use async_trait::async_trait;
use rdq_spi::{
    Applied, Ledger, Mutation, MutationKey, MutationScope, MutationStatus, NewMutation, Operation,
    OperationName, PruneParams, Pruned, Rejected, Result, StorageError, SubjectName,
};
use std::time::Duration;

impl Faulty {
    fn sound_ledger(&self) -> &dyn Ledger {
        self.store.ledger().expect("a ledger")
    }

    /// A scope as the storage understands it.
    fn scope(&self, scope: &MutationScope) -> MutationScope {
        if !self.is(Fault::ScopesFolded) {
            return scope.clone();
        }
        MutationScope {
            subject: SubjectName::stored(scope.subject.as_str().to_lowercase()),
            operation: OperationName::stored(scope.operation.as_str().to_lowercase()),
            key: MutationKey::stored(scope.key.as_str().to_lowercase()),
        }
    }

    /// A commit, which may observe a mutation.
    pub(super) async fn commit_observing(
        &self,
        mut operations: Vec<Operation>,
    ) -> Result<Vec<Applied>, Rejected> {
        let sound = self.sound_transactions();
        let Some(mut mutation) = Operation::observation(&operations)?.cloned() else {
            return sound.commit(operations).await;
        };
        mutation.scope = self.scope(&mutation.scope);
        if self.is(Fault::ResponsesAsText) {
            let text = String::from_utf8_lossy(&mutation.response).into_owned();
            mutation.response = text.into();
        }
        let observation = Operation::Observe(mutation.clone());
        let effects = operations.split_off(1);
        let of_effects = |rejected: Rejected| rejected.after(1);
        match self.fault {
            Fault::MutationsForgotten => {}
            Fault::RejectedOnesForgotten if mutation.status == MutationStatus::Rejected => {}
            Fault::ConflictsTakeEffect if self.differs(&mutation).await? => {}
            Fault::MutationsRecordedLater => {
                if let Some(found) = self.mutation(mutation.scope.clone()).await? {
                    return Err(observed(found));
                }
                tokio::task::yield_now().await;
                let applied = sound.commit(effects).await.map_err(of_effects)?;
                _ = sound.commit(vec![observation]).await;
                return Ok(answers(applied));
            }
            Fault::MutationsRecordedSooner => {
                sound.commit(vec![observation]).await?;
                tokio::task::yield_now().await;
                return sound.commit(effects).await.map(answers).map_err(of_effects);
            }
            _ => {
                let operations = std::iter::once(observation).chain(effects).collect();
                let answer = sound.commit(operations).await;
                return answer.map_err(|rejected| self.latecomer(rejected, mutation));
            }
        }
        sound.commit(effects).await.map(answers).map_err(of_effects)
    }

    async fn differs(&self, mutation: &NewMutation) -> Result<bool> {
        let found = self.sound_ledger().mutation(mutation.scope.clone()).await?;
        Ok(found.is_some_and(|found| !found.first.is_repeated_by(mutation)))
    }

    fn latecomer(&self, rejected: Rejected, brought: NewMutation) -> Rejected {
        match rejected.error {
            StorageError::MutationObserved { mutation }
                if self.is(Fault::LatecomersSeeTheirOwn) =>
            {
                observed(Mutation { first: brought, ..*mutation })
            }
            error => Rejected { error, ..rejected },
        }
    }
}

fn answers(effects: Vec<Applied>) -> Vec<Applied> {
    std::iter::once(Applied::Observed).chain(effects).collect()
}

fn observed(mutation: Mutation) -> Rejected {
    let error = StorageError::MutationObserved { mutation: Box::new(mutation) };
    Rejected { index: Some(0), error }
}

#[async_trait]
impl Ledger for Faulty {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        let mut found = self.sound_ledger().mutation(self.scope(&scope)).await?;
        if let Some(found) = &mut found
            && self.is(Fault::AnswersForgotten)
        {
            found.answers.clear();
        }
        Ok(found)
    }

    async fn prune(&self, mut params: PruneParams) -> Result<Pruned> {
        match self.fault {
            Fault::PrunedTooEarly => params.older_than = Duration::ZERO,
            Fault::StepsUnbounded => params.limit = u32::MAX,
            _ => {}
        }
        self.sound_ledger().prune(params).await
    }
}
