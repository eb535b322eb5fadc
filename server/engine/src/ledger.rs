//! The ledger: a mutation is executed once, and whoever asks again is told what came of it. Its
//! operations are checked and prepared as those of a commit.

use crate::{
    Engine, EngineError, OperationError, TransactionOperation,
    faculties::{ledger, transactions},
    limits::{COORDINATED_BYTES_MAX, EXTENT_MAX, check_blob, check_size},
    transactions::commit_checked,
};
use rdq_spi::{
    Applied, Mutation, MutationScope, MutationStatus, NewMutation, PruneParams, Pruned, Storage,
    StorageError,
};
use std::{sync::Arc, time::Duration};

/// What became of a call that executes a mutation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Execution {
    /// It was the first of its scope: what its operations were answered, if it was accepted.
    First(Vec<Applied>),
    /// The same request was executed before. Nothing changed.
    Replay(Box<Mutation>),
    /// Another request was executed under this scope. Nothing changed.
    Conflict,
}

impl Execution {
    /// Of a call whose scope has this record.
    fn of_later_call(asked: &NewMutation, found: &Mutation) -> Self {
        if found.first.is_repeated_by(asked) {
            Self::Replay(Box::new(found.clone()))
        } else {
            Self::Conflict
        }
    }
}

impl Engine {
    /// Executes a mutation if it is the first of its scope: its operations and its record together,
    /// or none of it. Of a rejected one there is nothing but the record.
    pub async fn execute(
        &self,
        mutation: NewMutation,
        mut operations: Vec<TransactionOperation>,
    ) -> Result<Execution, OperationError> {
        let storage = &*self.core.storage;
        ledger(storage, "execute").map_err(EngineError::from)?;
        transactions(storage, "execute").map_err(EngineError::from)?;
        check_blob("eligibility_claim", &mutation.eligibility_claim)?;
        check_size("response", mutation.response.len() as u64, COORDINATED_BYTES_MAX)?;
        if mutation.status == MutationStatus::Rejected {
            operations.clear();
        }
        let core = Arc::clone(&self.core);
        let run = async move {
            let executed = match core.check_operations(operations, 0) {
                Ok(checked) => commit_checked(&core, &checked, Some(&mutation)).await,
                Err(error) => Err(error),
            };
            let error = match executed {
                Ok(applied) => return Ok(Execution::First(applied)),
                Err(error) => error,
            };
            if let Some(found) = error.error.observed_before() {
                return Ok(Execution::of_later_call(&mutation, found));
            }
            // What was found wrong before the storage was asked to observe may be wrong only because
            // the mutation was executed: then this is a later call.
            if error.error.is_refusal() {
                let found = recorded(&*core.storage, mutation.scope.clone()).await;
                let found = found.map_err(EngineError::from)?;
                return found.map_or(Err(error), |it| Ok(Execution::of_later_call(&mutation, &it)));
            }
            Err(error)
        };
        self.core.run("execute", run).await?
    }

    /// Reads what is recorded of a mutation.
    pub async fn get_mutation(&self, scope: MutationScope) -> Result<Mutation, EngineError> {
        let wanted = scope.clone();
        let found = self
            .core
            .call("mutation", |storage| async move { recorded(&*storage, wanted).await })
            .await?;
        found.ok_or(EngineError::MutationNotFound { scope })
    }

    /// Removes at most so many mutations that were observed longer ago, the oldest first; at most
    /// 1,000. 0 removes none.
    pub async fn prune_mutations(
        &self,
        older_than: Duration,
        limit: u32,
    ) -> Result<Pruned, EngineError> {
        ledger(&*self.core.storage, "prune")?;
        if limit == 0 {
            return Ok(Pruned::default());
        }
        let params = PruneParams { older_than, limit: limit.min(EXTENT_MAX) };
        let prune = |storage: Arc<dyn Storage>| async move {
            ledger(&*storage, "prune")?.prune(params).await
        };
        self.core.call("prune", prune).await
    }
}

async fn recorded(
    storage: &dyn Storage,
    scope: MutationScope,
) -> rdq_spi::Result<Option<Mutation>> {
    ledger(storage, "mutation")?.mutation(scope).await
}

impl EngineError {
    /// The record that another observation of the scope left.
    fn observed_before(&self) -> Option<&Mutation> {
        match self {
            Self::Storage(error) => match &**error {
                StorageError::MutationObserved { mutation } => Some(mutation),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether it refuses what was asked, rather than being trouble of the storage or the server.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Storage(error) => !error.ends_transaction(),
            Self::Closed | Self::Overloaded { .. } => false,
            _ => true,
        }
    }
}
