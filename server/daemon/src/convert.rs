//! The one place where messages of the contract become domain types, and back. It checks shape and
//! grammar; what a value means is for the engine to judge.

mod answer;
mod queue;
mod request;
mod resolution;
mod schedule;
mod task;

pub(crate) use answer::{
    capabilities, claimed, count, enqueue_response, enqueue_result, extend_response, extend_result,
    lost, resolve_result, stats,
};
pub(crate) use queue::{queue_config, queue_view};
pub(crate) use request::{
    dlq_filter, extent, lease, max_in_flight, name, pace, queues, required_instant, selection,
    status_filter, task_id, worker_id,
};
pub(crate) use resolution::{
    extend, live_claim, resolution, resolve_complete, resolve_dead_letter, resolve_fail,
    resolve_release, resolve_reschedule,
};
pub(crate) use schedule::{boundary_task, schedule, schedule_definition, schedule_name};
pub(crate) use task::{status, submission, task_bytes};
