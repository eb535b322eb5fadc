//! `LockService`: exclusion for a time.

use crate::{convert, status::engine_status};
use rdq_engine::Engine;
use rdq_proto::v1::{self, lock_service_server::LockService};
use tonic::{Request, Response, Status};

type Reply<T> = Result<Response<T>, Status>;

/// Serves `LockService` from an engine.
#[derive(Debug)]
pub(crate) struct Locks {
    engine: Engine,
}

impl Locks {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl LockService for Locks {
    async fn try_lock(&self, request: Request<v1::TryLockRequest>) -> Reply<v1::TryLockResponse> {
        let params = convert::try_lock(&request.into_inner())?;
        let held = self.engine.try_lock(params).await.map_err(engine_status)?;
        Ok(Response::new(convert::try_lock_response(held.as_ref())))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Reply<v1::RenewResponse> {
        let request = request.into_inner();
        let hold = convert::hold(&request.name, &request.owner, request.generation)?;
        let ttl = convert::ttl(request.ttl.as_ref())?;
        let held = self.engine.renew_lock(hold, ttl).await.map_err(engine_status)?;
        Ok(Response::new(convert::renew_response(held.as_ref())))
    }

    async fn release(
        &self,
        request: Request<v1::LockServiceReleaseRequest>,
    ) -> Reply<v1::LockServiceReleaseResponse> {
        let request = request.into_inner();
        let hold = convert::hold(&request.name, &request.owner, request.generation)?;
        let released = self.engine.release_lock(hold).await.map_err(engine_status)?;
        Ok(Response::new(v1::LockServiceReleaseResponse { released }))
    }

    async fn get_lock(&self, request: Request<v1::GetLockRequest>) -> Reply<v1::GetLockResponse> {
        let name = convert::lock(&request.into_inner().name)?;
        let held = self.engine.get_lock(name).await.map_err(engine_status)?;
        Ok(Response::new(convert::get_lock_response(held.as_ref())))
    }
}
