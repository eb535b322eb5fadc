//! The one place where messages of the contract become domain types, and back. It checks shape and
//! grammar; what a value means is for the engine to judge.

mod answer;
mod coordination;
mod ledger;
mod outbox;
mod queue;
mod request;
mod resolution;
mod schedule;
mod task;
mod transaction;

pub(crate) use answer::{
    capabilities, claimed, count, enqueue_response, enqueue_result, extend_response, extend_result,
    lost, resolve_result, stats,
};
pub(crate) use coordination::{
    channel, compare_and_set, consumer, delete_record, events, get_lock_response, hold, lock,
    new_event, read, record, record_name, record_prefix, renew_response, save_offset, stream,
    subscribed_at_once, try_lock, try_lock_response, ttl,
};
pub(crate) use ledger::{execute, execute_response, mutation, older_than, scope};
pub(crate) use outbox::{
    claim_messages, failed_delivery, held_message, message, new_message, optional_outbox, outboxes,
    queue_or_outbox, release_message, unprojected,
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
pub(crate) use transaction::{commit_response, operation_refusal, operations};
