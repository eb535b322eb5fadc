//! The gRPC services: thin. Each call is decoded, handed to the engine, and its answer encoded.

mod claims;
mod ledger_service;
mod lock_service;
mod outbox_service;
mod queue_service;
mod record_service;
mod schedule_service;
mod signal_service;
mod stream_service;
mod task_service;
mod transact;
mod transaction_service;
mod work;

use rdq_engine::Engine;
use rdq_proto::v1::{
    ledger_service_server::LedgerServiceServer, lock_service_server::LockServiceServer,
    outbox_service_server::OutboxServiceServer, queue_service_server::QueueServiceServer,
    record_service_server::RecordServiceServer, schedule_service_server::ScheduleServiceServer,
    signal_service_server::SignalServiceServer, stream_service_server::StreamServiceServer,
    task_service_server::TaskServiceServer, transaction_service_server::TransactionServiceServer,
};
use std::time::Duration;
use tonic::service::Routes;

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

/// A service within the sizes of its messages.
macro_rules! sized {
    ($server:ident, $service:expr) => {
        $server::new($service)
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(RESPONSE_BYTES_MAX)
    };
}

pub(crate) fn task_service(engine: &Engine, keep_alive: KeepAlive) -> TaskServer {
    sized!(TaskServiceServer, task_service::Tasks::new(engine.clone(), keep_alive))
}

/// Every other service of the contract.
pub(crate) fn routes(engine: &Engine) -> Routes {
    let engine = || engine.clone();
    Routes::new(sized!(QueueServiceServer, queue_service::Queues::new(engine())))
        .add_service(sized!(SignalServiceServer, signal_service::Signals::new(engine())))
        .add_service(sized!(StreamServiceServer, stream_service::Streams::new(engine())))
        .add_service(sized!(LockServiceServer, lock_service::Locks::new(engine())))
        .add_service(sized!(ScheduleServiceServer, schedule_service::Schedules::new(engine())))
        .add_service(sized!(RecordServiceServer, record_service::Records::new(engine())))
        .add_service(sized!(OutboxServiceServer, outbox_service::Outboxes::new(engine())))
        .add_service(sized!(
            TransactionServiceServer,
            transaction_service::Transactions::new(engine())
        ))
        .add_service(sized!(LedgerServiceServer, ledger_service::Ledger::new(engine())))
}
