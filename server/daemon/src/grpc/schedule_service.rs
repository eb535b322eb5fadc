//! `ScheduleService`: tasks by the clock.

use super::ANONYMOUS;
use crate::{
    convert,
    status::{Refusal, engine_status},
};
use rdq_engine::{Engine, ListSchedulesRequest};
use rdq_proto::v1::{self, schedule_service_server::ScheduleService};
use tonic::{Request, Response, Status};

const PAGE_SIZE: u32 = 50;
const PAGE_SIZE_MAX: u32 = 1_000;

type Reply<T> = Result<Response<T>, Status>;

/// Serves `ScheduleService` from an engine.
#[derive(Debug)]
pub(crate) struct Schedules {
    engine: Engine,
}

impl Schedules {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine }
    }

    async fn set_paused(&self, name: &str, paused: bool) -> Result<Option<v1::Schedule>, Status> {
        let name = convert::schedule_name("name", name)?;
        let schedule = self.engine.pause_schedule(name, paused).await.map_err(engine_status)?;
        Ok(Some(convert::schedule(schedule)))
    }
}

#[tonic::async_trait]
impl ScheduleService for Schedules {
    async fn put_schedule(
        &self,
        request: Request<v1::PutScheduleRequest>,
    ) -> Reply<v1::PutScheduleResponse> {
        let missing = || Refusal::invalid("schedule", "`schedule` is required");
        let schedule = request.into_inner().schedule.ok_or_else(missing)?;
        let definition = convert::schedule_definition(schedule)?;
        let (schedule, created) =
            self.engine.put_schedule(definition).await.map_err(engine_status)?;
        let schedule = Some(convert::schedule(schedule));
        Ok(Response::new(v1::PutScheduleResponse { schedule, created }))
    }

    async fn delete_schedule(
        &self,
        request: Request<v1::DeleteScheduleRequest>,
    ) -> Reply<v1::DeleteScheduleResponse> {
        let name = convert::schedule_name("name", &request.into_inner().name)?;
        let existed = self.engine.delete_schedule(name).await.map_err(engine_status)?;
        Ok(Response::new(v1::DeleteScheduleResponse { existed }))
    }

    async fn list_schedules(
        &self,
        request: Request<v1::ListSchedulesRequest>,
    ) -> Reply<v1::ListSchedulesResponse> {
        let request = request.into_inner();
        let page = self.engine.list_schedules(ListSchedulesRequest {
            page_size: convert::extent(request.page_size, PAGE_SIZE, PAGE_SIZE_MAX),
            page_token: request.page_token,
            subject: ANONYMOUS.to_owned(),
        });
        let page = page.await.map_err(engine_status)?;
        Ok(Response::new(v1::ListSchedulesResponse {
            schedules: page.schedules.into_iter().map(convert::schedule).collect(),
            next_page_token: page.next_page_token,
        }))
    }

    async fn pause_schedule(
        &self,
        request: Request<v1::PauseScheduleRequest>,
    ) -> Reply<v1::PauseScheduleResponse> {
        let schedule = self.set_paused(&request.into_inner().name, true).await?;
        Ok(Response::new(v1::PauseScheduleResponse { schedule }))
    }

    async fn resume_schedule(
        &self,
        request: Request<v1::ResumeScheduleRequest>,
    ) -> Reply<v1::ResumeScheduleResponse> {
        let schedule = self.set_paused(&request.into_inner().name, false).await?;
        Ok(Response::new(v1::ResumeScheduleResponse { schedule }))
    }
}
