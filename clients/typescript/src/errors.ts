/** What a call, or one item of a batch, was refused with: one class a reason, under {@link RdqError}. */

import { fromBinary } from '@bufbuild/protobuf'
import { anyUnpack } from '@bufbuild/protobuf/wkt'
import type { Metadata } from '@grpc/grpc-js'
import { ErrorInfoSchema, RetryInfoSchema, StatusSchema } from './gen/google/rpc/status_pb.js'
import { ErrorReason } from './gen/rdq/v1/error_reason_pb.js'
import type { ItemError } from './gen/rdq/v1/task_service_pb.js'
import { toMs } from './time.js'

/** The codes of gRPC. */
export const Code = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const

/** One of the codes of gRPC. */
export type Code = (typeof Code)[keyof typeof Code]

/** What is known of a refusal. */
export interface RdqErrorInit {
  /** The code of gRPC. */
  code: Code
  /** For people. */
  message: string
  /** The contract's name of the refusal, such as `STALE_CLAIM`; unset if the server sent none. */
  reason?: string | undefined
  /** What the message mentions, for programs. */
  metadata?: Readonly<Record<string, string>>
  /** How long the server wants to be left alone, in milliseconds. */
  retryAfterMs?: number | undefined
  /** Whether the change may have happened all the same; what the metadata says, if unset. */
  outcomeUnknown?: boolean
  /** What led to it. */
  cause?: unknown
}

/**
 * A call, or one item of a batch, was refused. A reason that this version knows has a class of its own; any other, or
 * none, is this class itself: decide by the code then.
 */
export class RdqError extends Error {
  /** The code of gRPC. */
  readonly code: Code
  /** The contract's name of the refusal, such as `STALE_CLAIM`; unset if the server sent none. */
  readonly reason: string | undefined
  /** What the message mentions, for programs. */
  readonly metadata: Readonly<Record<string, string>>
  /** How long the server wants to be left alone, in milliseconds. */
  readonly retryAfterMs: number | undefined
  /** Whether the change may have happened all the same, by this try of the call or an earlier one. */
  outcomeUnknown: boolean
  /** How many dead letters `redrive` or `purge` had reported when it failed; unset for other calls. */
  count: number | undefined

  constructor(init: RdqErrorInit) {
    super(init.message, init.cause === undefined ? undefined : { cause: init.cause })
    this.name = new.target.name
    this.code = init.code
    this.reason = init.reason
    this.metadata = init.metadata ?? {}
    this.retryAfterMs = init.retryAfterMs
    this.outcomeUnknown = init.outcomeUnknown ?? this.metadata['outcome_unknown'] === 'true'
  }

  /**
   * Whether the same call may succeed later. The client has repeated it already, for as long as its deadline allowed.
   */
  get retryable(): boolean {
    return isRetryable(this.code, this.reason)
  }

  /** Which operation of a `Commit` was refused, counted from zero; unset if it was none of them. */
  get operationIndex(): number | undefined {
    return numberIn(this.metadata['operation_index'])
  }
}

/** The claim is superseded, or was never issued: drop the work. `metadata.detail` may say `CANCELLED` or `EXPIRED`. */
export class StaleClaimError extends RdqError {}
/** The queue still holds tasks. */
export class QueueNotEmptyError extends RdqError {}
/** The page token is of a retired key or an older format: start again with the first page. */
export class StaleCursorError extends RdqError {}
/** No such task. */
export class NotFoundError extends RdqError {}
/** No such queue. */
export class QueueNotFoundError extends RdqError {}
/** The task's id is taken in another queue. */
export class IdConflictError extends RdqError {}
/** A lock was not had in time; nothing changed. */
export class ContentionError extends RdqError {}
/** A name is empty, blank, too long or has control characters; `metadata.field` says which. */
export class InvalidNameError extends RdqError {}
/** A name starts with the reserved `__rdq_`; `metadata.field` says which. */
export class ReservedNameError extends RdqError {}
/** A value is missing, contradictory or out of range; `metadata.field` says which. */
export class InvalidArgumentError extends RdqError {}
/** The page token is not one of this service's, or was changed. */
export class InvalidCursorError extends RdqError {}
/** The page token belongs to another caller, list or filter. */
export class CursorBindingMismatchError extends RdqError {}
/** The backend cannot do this. */
export class UnsupportedError extends RdqError {}
/** The storage cannot be reached. */
export class StorageUnavailableError extends RdqError {}
/** The server is draining. */
export class ClosedError extends RdqError {}
/** Too many calls or streams at once; nothing changed. */
export class OverloadedError extends RdqError {}
/** The storage has no space left; nothing changed. */
export class StorageFullError extends RdqError {}
/** The request is larger than the server reads. */
export class MessageTooLargeError extends RdqError {}
/** A fault of the service; `metadata.correlation_id` finds it in the server's log. */
export class InternalError extends RdqError {}
/** No valid credentials. */
export class UnauthenticatedError extends RdqError {}
/** The credentials do not grant this. */
export class PermissionDeniedError extends RdqError {}
/** The call's deadline passed at the server. */
export class DeadlineExceededError extends RdqError {}
/** The record is at another revision than was expected; nothing changed. */
export class CasConflictError extends RdqError {}
/** A schedule's spec or time zone is not one, or never comes. */
export class InvalidSpecError extends RdqError {}
/** No such message of an outbox. */
export class OutboxMissingError extends RdqError {}
/** The message is not claimed by that worker with that generation; nothing changed. */
export class OutboxClaimMismatchError extends RdqError {}
/** The ledger has a record of another request under this scope; nothing changed. */
export class MutationConflictError extends RdqError {}
/** A lock that was held is held no more: a `Lock`'s own error, which no server sends. */
export class LockLostError extends RdqError {}

/** A payload, or another part with a limit, is too large. */
export class PayloadTooLargeError extends RdqError {
  /** The limit, in bytes, if the server said it. */
  get limitBytes(): number | undefined {
    return numberIn(this.metadata['limit_bytes'])
  }

  /** The size, in bytes, if the server said it. */
  get sizeBytes(): number | undefined {
    return numberIn(this.metadata['size_bytes'])
  }
}

/**
 * The server's contract has another major version than this client's: a worker stops at once. No server sends
 * this; its reason is `OTHER_CONTRACT_VERSION`.
 */
export class OtherContractVersionError extends RdqError {
  /** `major.minor` of the contract that this client speaks. */
  get clientVersion(): string {
    return this.metadata['client_version'] ?? ''
  }

  /** `major.minor` of the contract that the server speaks. */
  get serverVersion(): string {
    return this.metadata['server_version'] ?? ''
  }
}

function numberIn(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text)
}

/** By the contract's names. A reason that is missing here does not compile. */
const CLASSES: Record<Exclude<keyof typeof ErrorReason, 'UNSPECIFIED'>, typeof RdqError> = {
  STALE_CLAIM: StaleClaimError,
  QUEUE_NOT_EMPTY: QueueNotEmptyError,
  STALE_CURSOR: StaleCursorError,
  NOT_FOUND: NotFoundError,
  QUEUE_NOT_FOUND: QueueNotFoundError,
  ID_CONFLICT: IdConflictError,
  CONTENTION: ContentionError,
  INVALID_NAME: InvalidNameError,
  RESERVED_NAME: ReservedNameError,
  INVALID_ARGUMENT: InvalidArgumentError,
  INVALID_CURSOR: InvalidCursorError,
  CURSOR_BINDING_MISMATCH: CursorBindingMismatchError,
  PAYLOAD_TOO_LARGE: PayloadTooLargeError,
  UNSUPPORTED: UnsupportedError,
  STORAGE_UNAVAILABLE: StorageUnavailableError,
  CLOSED: ClosedError,
  OVERLOADED: OverloadedError,
  STORAGE_FULL: StorageFullError,
  MESSAGE_TOO_LARGE: MessageTooLargeError,
  INTERNAL: InternalError,
  UNAUTHENTICATED: UnauthenticatedError,
  PERMISSION_DENIED: PermissionDeniedError,
  DEADLINE_EXCEEDED: DeadlineExceededError,
  CAS_CONFLICT: CasConflictError,
  INVALID_SPEC: InvalidSpecError,
  OUTBOX_MISSING: OutboxMissingError,
  OUTBOX_CLAIM_MISMATCH: OutboxClaimMismatchError,
  MUTATION_CONFLICT: MutationConflictError,
}

/** An error of the class that its reason has. */
export function errorOf(init: RdqErrorInit): RdqError {
  const { reason } = init
  const known = reason !== undefined && Object.hasOwn(CLASSES, reason)
  const ErrorClass = known ? CLASSES[reason as keyof typeof CLASSES] : RdqError
  return new ErrorClass(init)
}

/** Without a word of the server, these say only that no answer came. */
const LOST_ON_THE_WAY = new Set<number>([Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE])

/** The error of a call, from what the transport says of it. */
export function errorOfStatus(status: {
  code: number
  details: string
  metadata: Metadata
}): RdqError {
  const init: RdqErrorInit = { code: status.code as Code, message: status.details }
  const details = status.metadata.get('grpc-status-details-bin')[0]
  if (details instanceof Uint8Array) {
    try {
      addDetails(init, details)
    } catch {
      // Details that cannot be read: the code and the message are what there is.
    }
  }
  if (init.reason === undefined && LOST_ON_THE_WAY.has(status.code)) {
    init.outcomeUnknown = true
  }
  return errorOf(init)
}

function addDetails(init: RdqErrorInit, bytes: Uint8Array): void {
  for (const detail of fromBinary(StatusSchema, bytes).details) {
    const info = anyUnpack(detail, ErrorInfoSchema)
    if (info?.domain === 'rdq') {
      init.reason = info.reason
      init.metadata = info.metadata
    }
    const retryDelay = anyUnpack(detail, RetryInfoSchema)?.retryDelay
    if (retryDelay !== undefined) {
      init.retryAfterMs = toMs(retryDelay)
    }
  }
}

/** The error of one item of a batch. */
export function errorOfItem(item: ItemError): RdqError {
  // A number beyond those that this version knows has no name here.
  const name = ErrorReason[item.reason] as string | undefined
  const reason = name === 'UNSPECIFIED' ? undefined : (name ?? String(item.reason))
  return errorOf({
    code: item.code as Code,
    message: item.message,
    reason,
    metadata: item.metadata,
  })
}

/** Whether the same call may succeed later; what a client repeats by itself. */
export function isRetryable(code: number, reason: string | undefined): boolean {
  switch (code) {
    case Code.UNAVAILABLE:
    case Code.DEADLINE_EXCEEDED:
      return true
    case Code.ABORTED:
      return reason === 'CONTENTION'
    case Code.RESOURCE_EXHAUSTED:
      return reason === 'OVERLOADED'
    default:
      return false
  }
}
