//! Schedules: tasks that are enqueued again and again, by the clock. A schedule is a record that holds
//! its next boundary; at the boundary, one commit enqueues a task and moves the record on.

mod admin; // start here
mod runner;
mod firing;
mod plan;

mod record;
mod store;

mod spec;
mod cron;
mod zone;
#[cfg(test)]
mod spec_tests;

pub use admin::{ListSchedulesRequest, SchedulePage};
pub use firing::BoundaryTask;
pub use runner::RunSchedulesError;
pub(crate) use store::required;

use bytes::Bytes;
use rdq_spi::{ChannelName, QueueName, ScheduleName, Timestamp};
use std::{collections::BTreeMap, time::Duration};

/// A schedule as its owner wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleDefinition {
    /// Its name.
    pub name: ScheduleName,
    /// When its boundaries come.
    pub spec: String,
    /// Where; UTC if empty.
    pub time_zone: String,
    /// The queue of its tasks.
    pub queue: QueueName,
    /// The handler of its tasks.
    pub handler_ref: QueueName,
    /// The payload of its tasks.
    pub payload: Bytes,
    /// The headers of its tasks, beside the system's.
    pub headers: BTreeMap<String, String>,
    /// The priority of its tasks.
    pub priority: i32,
    /// The attempts of its tasks; the queue's if unset.
    pub max_attempts: Option<u32>,
    /// A task that is not finished so long after its boundary is dead; never if unset.
    pub expires_in: Option<Duration>,
    /// No boundary gives a task.
    pub paused: bool,
}

/// A schedule as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// What its owner wants.
    pub definition: ScheduleDefinition,
    /// The next boundary; unset while paused, or if none comes any more.
    pub next_boundary_at: Option<Timestamp>,
    /// The last boundary that gave a task.
    pub last_boundary_at: Option<Timestamp>,
    /// When it was first stored.
    pub created_at: Timestamp,
}

/// Tells the runner that schedules changed.
fn changes() -> ChannelName {
    ChannelName::stored("__rdq_schedules")
}
