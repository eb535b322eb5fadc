/** The contract's messages and services as they are generated, for `RdqClient.call`, `callOnce`, `stream` and `Task.raw`. */

export * from './gen/rdq/v1/error_reason_pb.js'
export * from './gen/rdq/v1/ledger_service_pb.js'
export * from './gen/rdq/v1/lock_service_pb.js'
export * from './gen/rdq/v1/outbox_service_pb.js'
export * from './gen/rdq/v1/queue_service_pb.js'
export * from './gen/rdq/v1/record_service_pb.js'
export * from './gen/rdq/v1/schedule_service_pb.js'
export * from './gen/rdq/v1/signal_service_pb.js'
export * from './gen/rdq/v1/stream_service_pb.js'
export * from './gen/rdq/v1/task_pb.js'
export * from './gen/rdq/v1/task_service_pb.js'
export * from './gen/rdq/v1/transaction_service_pb.js'
