//! `RecordService`: values by compare-and-set.

use super::ANONYMOUS;
use crate::{convert, status::engine_status};
use rdq_engine::{Engine, ListRecordsRequest};
use rdq_proto::v1::{self, record_service_server::RecordService};
use tonic::{Request, Response, Status};

const PAGE_SIZE: u32 = 50;
const PAGE_SIZE_MAX: u32 = 1_000;

type Reply<T> = Result<Response<T>, Status>;

/// Serves `RecordService` from an engine.
#[derive(Debug)]
pub(crate) struct Records {
    engine: Engine,
}

impl Records {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }
}

#[tonic::async_trait]
impl RecordService for Records {
    async fn get_record(
        &self,
        request: Request<v1::GetRecordRequest>,
    ) -> Reply<v1::GetRecordResponse> {
        let name = convert::record_name(&request.into_inner().key)?;
        let record = self.engine.get_record(name).await.map_err(engine_status)?;
        Ok(Response::new(v1::GetRecordResponse { record: Some(convert::record(record)) }))
    }

    async fn compare_and_set(
        &self,
        request: Request<v1::CompareAndSetRequest>,
    ) -> Reply<v1::CompareAndSetResponse> {
        let change = convert::compare_and_set(request.into_inner())?;
        let revision = self.engine.change_record(change).await.map_err(engine_status)?;
        Ok(Response::new(v1::CompareAndSetResponse { revision }))
    }

    async fn delete_record(
        &self,
        request: Request<v1::DeleteRecordRequest>,
    ) -> Reply<v1::DeleteRecordResponse> {
        let change = convert::delete_record(&request.into_inner())?;
        self.engine.change_record(change).await.map_err(engine_status)?;
        Ok(Response::new(v1::DeleteRecordResponse {}))
    }

    async fn list_records(
        &self,
        request: Request<v1::ListRecordsRequest>,
    ) -> Reply<v1::ListRecordsResponse> {
        let request = request.into_inner();
        let page = self.engine.list_records(ListRecordsRequest {
            prefix: convert::record_prefix(request.prefix)?,
            page_size: convert::extent(request.page_size, PAGE_SIZE, PAGE_SIZE_MAX),
            page_token: request.page_token,
            subject: ANONYMOUS.to_owned(),
        });
        let page = page.await.map_err(engine_status)?;
        Ok(Response::new(v1::ListRecordsResponse {
            records: page.records.into_iter().map(convert::record).collect(),
            next_page_token: page.next_page_token,
        }))
    }
}
