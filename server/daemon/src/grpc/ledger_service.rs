//! `LedgerService`: mutations that are executed once.

use crate::{
    convert,
    status::{Refusal, engine_status},
};
use rdq_engine::Engine;
use rdq_proto::v1::{self, ledger_service_server::LedgerService};
use tonic::{Request, Response, Status};

/// Mutations removed by one call.
const PRUNED_MAX: u32 = 1_000;

type Reply<T> = Result<Response<T>, Status>;

/// Serves `LedgerService` from an engine.
#[derive(Debug)]
pub(crate) struct Ledger {
    engine: Engine,
}

impl Ledger {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl LedgerService for Ledger {
    async fn execute(&self, request: Request<v1::ExecuteRequest>) -> Reply<v1::ExecuteResponse> {
        let (mutation, operations, asked) = convert::execute(request.into_inner())?;
        let first = (mutation.status, mutation.response.clone());
        let execution = self.engine.execute(mutation, operations).await;
        let execution = execution.map_err(|error| convert::operation_refusal(error, &asked))?;
        Ok(Response::new(convert::execute_response(execution, first, asked)?))
    }

    async fn get_mutation(
        &self,
        request: Request<v1::GetMutationRequest>,
    ) -> Reply<v1::GetMutationResponse> {
        let scope = convert::scope(request.into_inner().scope)?;
        let found = self.engine.get_mutation(scope).await.map_err(engine_status)?;
        Ok(Response::new(v1::GetMutationResponse { mutation: Some(convert::mutation(found)) }))
    }

    async fn prune_mutations(
        &self,
        request: Request<v1::PruneMutationsRequest>,
    ) -> Reply<v1::PruneMutationsResponse> {
        let request = request.into_inner();
        let older_than = convert::older_than(request.older_than.as_ref())?;
        let limit = convert::extent(request.limit, PRUNED_MAX, PRUNED_MAX);
        let pruned = self.engine.prune_mutations(older_than, limit).await;
        let pruned = pruned.map_err(Refusal::Engine)?;
        let count = convert::count(pruned.count);
        Ok(Response::new(v1::PruneMutationsResponse { count, more: pruned.more }))
    }
}
