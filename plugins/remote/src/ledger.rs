//! The ledger: a commit that observes a mutation is `Execute`.

use crate::{
    client::{answer, request},
    convert,
    errors::Operation,
    storage::RemoteStorage,
    transactions::{commit_request, rejected},
};
use async_trait::async_trait;
use rdq_proto::v1::{self, MutationDisposition};
use rdq_spi::{
    Applied, Ledger, Mutation, MutationScope, NewMutation, Operation as Step, PruneParams, Pruned,
    Rejected, Result, StorageError,
};

const EXECUTE: Operation = Operation::changing("execute");
const MUTATION: Operation = Operation::reading("mutation");
const PRUNE: Operation = Operation::changing("prune");

impl RemoteStorage {
    /// Observes a mutation with these effects.
    pub(crate) async fn execute(
        &self,
        mutation: NewMutation,
        effects: Vec<Step>,
    ) -> Result<Vec<Applied>, Rejected> {
        let mut client = self.client()?;
        let scope = mutation.scope.clone();
        let operations = commit_request(effects.clone()).map_err(|rejected| rejected.after(1))?;
        let asked = request(convert::execute_request(mutation, operations.operations));
        let response = answer(async move { client.ledger.execute(asked).await }).await;
        let response =
            response.map_err(|failure| rejected(&failure, EXECUTE, &effects).after(1))?;
        if response.disposition() == MutationDisposition::First {
            let applied = convert::applied(&effects, response.results);
            let applied = applied.map_err(|broken| EXECUTE.broken(broken))?;
            return Ok(std::iter::once(Applied::Observed).chain(applied).collect());
        }
        let error = match self.mutation(scope).await? {
            Some(mutation) => StorageError::MutationObserved { mutation: Box::new(mutation) },
            // It was pruned meanwhile.
            None => StorageError::Contention { operation: "execute" },
        };
        Err(Rejected { index: Some(0), error })
    }
}

#[async_trait]
impl Ledger for RemoteStorage {
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>> {
        let mut client = self.client()?;
        let asked = v1::GetMutationRequest { scope: Some(convert::scope(scope)) };
        let found = answer(async move { client.ledger.get_mutation(request(asked)).await }).await;
        match found {
            Ok(response) => {
                let mutation = convert::mutation(response.mutation);
                mutation.map(Some).map_err(|broken| MUTATION.broken(broken))
            }
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure.error(MUTATION, None)),
        }
    }

    async fn prune(&self, params: PruneParams) -> Result<Pruned> {
        let mut client = self.client()?;
        let asked = request(convert::prune_request(params));
        let done = answer(async move { client.ledger.prune_mutations(asked).await }).await;
        Ok(convert::pruned(&done.map_err(|failure| failure.error(PRUNE, None))?))
    }
}
