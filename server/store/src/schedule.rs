//! Schedules: tasks by the clock.

use crate::{
    Result, StopToken,
    error::named,
    payload::{CONTENT_TYPE, HANDLER},
};
use bytes::Bytes;
use prost::Message as _;
use rdq_engine::{BoundaryTask, Engine, ScheduleDefinition};
use rdq_proto::v1;
use rdq_spi::{QueueName, ScheduleName, Timestamp};
use std::{collections::BTreeMap, time::Duration};

/// What the tasks of a schedule ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScheduleOpts {
    /// The IANA time zone of a cron spec; UTC if empty.
    pub time_zone: String,
    /// Higher goes first.
    pub priority: i32,
    /// How often each is tried; the queue's if unset.
    pub max_attempts: Option<u32>,
    /// Dead if it is not done so long after its boundary; never if unset.
    pub expires: Option<Duration>,
}

/// A schedule as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Its name.
    pub name: String,
    /// When: `@every 90s`, or five fields of cron.
    pub spec: String,
    /// Where its tasks go.
    pub queue: String,
    /// The next boundary; unset while it is paused.
    pub next_boundary_at: Option<Timestamp>,
    /// The last boundary that gave a task.
    pub last_boundary_at: Option<Timestamp>,
}

pub(crate) async fn put(
    engine: &Engine,
    (name, spec): (&str, &str),
    queue: &str,
    payload: Bytes,
    opts: ScheduleOpts,
) -> Result<Schedule> {
    let definition = ScheduleDefinition {
        name: named("name", ScheduleName::new(name))?,
        spec: spec.to_owned(),
        time_zone: opts.time_zone,
        queue: named("queue", QueueName::new(queue))?,
        handler_ref: named("handler_ref", QueueName::new(HANDLER))?,
        payload,
        headers: BTreeMap::new(),
        priority: opts.priority,
        max_attempts: opts.max_attempts,
        expires_in: opts.expires,
        paused: false,
    };
    let (stored, _) = engine.put_schedule(definition).await?;
    Ok(Schedule {
        name: stored.definition.name.to_string(),
        spec: stored.definition.spec,
        queue: stored.definition.queue.to_string(),
        next_boundary_at: stored.next_boundary_at,
        last_boundary_at: stored.last_boundary_at,
    })
}

pub(crate) async fn remove(engine: &Engine, name: &str) -> Result<bool> {
    Ok(engine.delete_schedule(named("name", ScheduleName::new(name))?).await?)
}

pub(crate) async fn run(engine: &Engine, stop: StopToken) -> Result<()> {
    Ok(engine.run_schedules(envelope, stop).await?)
}

fn envelope(task: BoundaryTask<'_>) -> Bytes {
    let definition = task.definition;
    let envelope = v1::Task {
        id: task.id.to_string(),
        queue: definition.queue.to_string(),
        handler_ref: definition.handler_ref.to_string(),
        payload: definition.payload.clone(),
        payload_content_type: CONTENT_TYPE.to_owned(),
        headers: task.headers.into_iter().collect(),
        priority: definition.priority,
        max_attempts: definition.max_attempts.and_then(|count| i32::try_from(count).ok()),
        ..v1::Task::default()
    };
    envelope.encode_to_vec().into()
}
