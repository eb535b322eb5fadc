//! Schedules, and the tasks that their boundaries give.

use super::{
    request::{delay, name},
    task::{check_headers, clamp},
};
use crate::status::Refusal;
use bytes::Bytes;
use prost::Message as _;
use rdq_engine::{BoundaryTask, Schedule, ScheduleDefinition};
use rdq_proto::{time, v1};
use rdq_spi::{ScheduleName, Timestamp};

pub(crate) fn schedule_name(field: &'static str, text: &str) -> Result<ScheduleName, Refusal> {
    ScheduleName::new(text).map_err(|error| Refusal::Name { field, error })
}

/// What a caller wants of a schedule. Fields that are output only are not looked at.
pub(crate) fn schedule_definition(from: v1::Schedule) -> Result<ScheduleDefinition, Refusal> {
    const ATTEMPTS: &str = "schedule.max_attempts";
    check_headers("schedule.headers", &from.headers)?;
    let max_attempts = from.max_attempts.map(|max| {
        u32::try_from(max)
            .map_err(|_| Refusal::invalid(ATTEMPTS, format!("`{ATTEMPTS}` must be at least 1")))
    });
    let expires_in = from.expires_in.as_ref();
    Ok(ScheduleDefinition {
        name: schedule_name("schedule.name", &from.name)?,
        queue: name("schedule.queue", &from.queue)?,
        handler_ref: name("schedule.handler_ref", &from.handler_ref)?,
        max_attempts: max_attempts.transpose()?,
        expires_in: expires_in.map(|span| delay("schedule.expires_in", span)).transpose()?,
        spec: from.spec,
        time_zone: from.time_zone,
        payload: from.payload,
        headers: from.headers.into_iter().collect(),
        priority: from.priority,
        paused: from.paused,
    })
}

pub(crate) fn schedule(schedule: Schedule) -> v1::Schedule {
    let Schedule { definition, next_boundary_at, last_boundary_at, created_at } = schedule;
    let timestamp = |at: Timestamp| time::timestamp(at.millis());
    v1::Schedule {
        name: definition.name.into(),
        spec: definition.spec,
        time_zone: definition.time_zone,
        queue: definition.queue.into(),
        handler_ref: definition.handler_ref.into(),
        payload: definition.payload,
        headers: definition.headers.into_iter().collect(),
        priority: definition.priority,
        max_attempts: definition.max_attempts.map(clamp),
        expires_in: definition.expires_in.map(time::duration),
        paused: definition.paused,
        next_boundary_at: next_boundary_at.map(timestamp),
        last_boundary_at: last_boundary_at.map(timestamp),
        created_at: Some(timestamp(created_at)),
    }
}

/// The task of a boundary, as a client would send it.
pub(crate) fn boundary_task(task: BoundaryTask<'_>) -> Bytes {
    let BoundaryTask { id, definition, headers } = task;
    let task = v1::Task {
        id: id.as_str().to_owned(),
        queue: definition.queue.as_str().to_owned(),
        handler_ref: definition.handler_ref.as_str().to_owned(),
        payload: definition.payload.clone(),
        headers: headers.into_iter().collect(),
        priority: definition.priority,
        max_attempts: definition.max_attempts.map(clamp),
        ..v1::Task::default()
    };
    task.encode_to_vec().into()
}
