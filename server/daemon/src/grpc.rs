//! The gRPC services: thin. Each call is decoded, handed to the engine, and its answer encoded.

mod claims;
mod queue_service;
mod schedule_service;
mod task_service;
mod work;

use rdq_engine::Engine;
use rdq_proto::v1::{
    queue_service_server::QueueServiceServer, schedule_service_server::ScheduleServiceServer,
    task_service_server::TaskServiceServer,
};
use std::time::Duration;

/// No request is larger than this.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 20;
/// No answer is larger than 3.5 MiB by design; a margin for what surrounds it, below the 4 MiB that
/// clients accept by default.
const RESPONSE_BYTES_MAX: usize = 4 << 20;

/// Who calls, until callers authenticate.
const ANONYMOUS: &str = "anonymous";

/// A stream that no item has left for so long carries an empty one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepAlive(pub(crate) Duration);

/// `TaskService`, served from an engine.
pub(crate) type TaskServer = TaskServiceServer<task_service::Tasks>;

pub(crate) fn task_service(engine: &Engine, keep_alive: KeepAlive) -> TaskServer {
    TaskServiceServer::new(task_service::Tasks::new(engine.clone(), keep_alive))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX)
}

pub(crate) fn queue_service(engine: &Engine) -> QueueServiceServer<queue_service::Queues> {
    QueueServiceServer::new(queue_service::Queues::new(engine.clone()))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX)
}

pub(crate) fn schedule_service(
    engine: &Engine,
) -> ScheduleServiceServer<schedule_service::Schedules> {
    ScheduleServiceServer::new(schedule_service::Schedules::new(engine.clone()))
        .max_decoding_message_size(REQUEST_BYTES_MAX)
        .max_encoding_message_size(RESPONSE_BYTES_MAX)
}
