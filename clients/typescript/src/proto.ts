/** The contract's messages and services as they are generated, for `RdqClient.call` and `Task.raw`. */

export * from './gen/rdq/v1/error_reason_pb.js'
export * from './gen/rdq/v1/queue_service_pb.js'
export * from './gen/rdq/v1/task_pb.js'
export * from './gen/rdq/v1/task_service_pb.js'
