//! `TransactionService`: `Commit`, and which module serves `Transact`.

use super::transact;
use crate::{convert, status::Refusal};
use futures::Stream;
use rdq_engine::Engine;
use rdq_proto::v1::{self, transaction_service_server::TransactionService};
use std::pin::Pin;
use tonic::{Request, Response, Status, Streaming};

type Reply<T> = Result<Response<T>, Status>;

/// Serves `TransactionService` from an engine.
#[derive(Debug)]
pub(crate) struct Transactions {
    engine: Engine,
}

impl Transactions {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl TransactionService for Transactions {
    type TransactStream = Pin<Box<dyn Stream<Item = Result<v1::TransactResponse, Status>> + Send>>;

    async fn commit(&self, request: Request<v1::CommitRequest>) -> Reply<v1::CommitResponse> {
        let (operations, asked) = convert::operations(request.into_inner())?;
        match self.engine.commit(operations).await {
            Ok(applied) => Ok(Response::new(convert::commit_response(asked, applied)?)),
            Err(error) => Err(Status::from(convert::operation_refusal(error, &asked))),
        }
    }

    async fn transact(
        &self,
        request: Request<Streaming<v1::TransactRequest>>,
    ) -> Reply<Self::TransactStream> {
        let transaction = self.engine.begin(super::ANONYMOUS).await.map_err(Refusal::Engine)?;
        Ok(Response::new(transact::serve(transaction, request.into_inner())))
    }
}
