/** The client of rdq: a producer, a worker, the operator's calls, and errors by their reasons. */

export {
  type Capabilities,
  type ClientOptions,
  type DlqFilter,
  type DlqListOptions,
  type Enqueued,
  type EnqueueResult,
  type ListOptions,
  type PurgeOptions,
  RdqClient,
  type RedriveOptions,
  type Selector,
  type TaskListOptions,
} from './client.js'
export {
  Code,
  CasConflictError,
  ClosedError,
  ContentionError,
  CursorBindingMismatchError,
  DeadlineExceededError,
  IdConflictError,
  InternalError,
  InvalidArgumentError,
  InvalidCursorError,
  InvalidNameError,
  InvalidSpecError,
  LockLostError,
  MessageTooLargeError,
  MutationConflictError,
  NotFoundError,
  OtherContractVersionError,
  OutboxClaimMismatchError,
  OutboxMissingError,
  OverloadedError,
  PayloadTooLargeError,
  PermissionDeniedError,
  QueueNotEmptyError,
  QueueNotFoundError,
  RdqError,
  ReservedNameError,
  StaleClaimError,
  StaleCursorError,
  StorageFullError,
  StorageUnavailableError,
  UnauthenticatedError,
  UnsupportedError,
} from './errors.js'
export { Lock, type LockOptions } from './lock.js'
export { type Deliver, OutboxRelay, type OutboxRelayOptions } from './outbox_relay.js'
export { type Page, Pages } from './pages.js'
export type { Queue, QueueConfig, QueueStats } from './queue.js'
export type { CallOptions } from './retry.js'
export { type EventHandler, Subscription, type SubscriptionOptions } from './subscription.js'
export type { Attempt, AttemptError, AttemptOutcome, Task, TaskInput, TaskStatus } from './task.js'
export type { ConnectionOptions, TlsOptions } from './transport.js'
export { HandlerStopped, Claim, type StopCause } from './worker/claim.js'
export type { Logger } from './worker/log.js'
export {
  type Ended,
  type FailureOptions,
  type Outcome,
  Permanent,
  Retryable,
  RetryAfter,
  Snooze,
  Success,
  TaskError,
} from './worker/outcome.js'
export type { Handler, HandlerResult } from './worker/routing.js'
export { type OutcomeMapper, Worker, type WorkerOptions } from './worker/worker.js'
