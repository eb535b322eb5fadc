/** Tasks as a caller writes and reads them, and the contract's messages that they become. */

import { create, type MessageInitShape } from '@bufbuild/protobuf'
import {
  type Attempt as AttemptMessage,
  AttemptOutcome as AttemptOutcomeEnum,
  type Task as TaskMessage,
  TaskSchema,
  TaskStatus as TaskStatusEnum,
} from './gen/rdq/v1/task_pb.js'
import { ulid } from './ids.js'
import { toDate, toDuration, toMs, toTimestamp } from './time.js'

/** Where a task stands. `UNKNOWN`: a status newer than this client; treat it as not finished. */
export type TaskStatus = 'PENDING' | 'IN_FLIGHT' | 'SUCCEEDED' | 'DEAD' | 'CANCELLED' | 'UNKNOWN'

/** How an attempt ended. `UNKNOWN`: an outcome newer than this client; treat it as a retryable failure. */
export type AttemptOutcome =
  'SUCCESS' | 'RETRYABLE_FAILURE' | 'PERMANENT_FAILURE' | 'LEASE_EXPIRED' | 'CANCELLED' | 'UNKNOWN'

/** A task to be enqueued. What is unset of the overrides is the queue's. */
export interface TaskInput {
  /** The queue. */
  queue: string
  /** Which handler of the worker runs it. */
  handlerRef: string
  /** Names the task for life; a ULID if unset. The same id again in the queue admits nothing twice. */
  id?: string
  /** Bytes for the handler, or text, which is sent as UTF-8. */
  payload?: Uint8Array | string
  /** What the payload is, `application/json` for instance. */
  contentType?: string
  /** Carried to the handler. */
  headers?: Readonly<Record<string, string>>
  /** The version of the handler that is meant. */
  handlerVersion?: string
  /** Higher goes first; 0 if unset. A whole number of 32 bits. */
  priority?: number
  /** Due so long after the admission, in milliseconds, by the server's clock. Wins over `dueAt`. */
  delayMs?: number
  /** Due at this instant. */
  dueAt?: Date
  /** Dead so long after the admission if not finished, in milliseconds. Wins over `expiresAt`. */
  expiresInMs?: number
  /** Dead at this instant if not finished. */
  expiresAt?: Date
  /** How many attempts it has before it is dead. */
  maxAttempts?: number
  /** How long a worker holds it, in milliseconds: 10 ms to 12 h. */
  leaseMs?: number
  /** The backoff after the first failed attempt, in milliseconds. */
  initialBackoffMs?: number
  /** How long it is kept once it is dead, in milliseconds. */
  retentionDeadMs?: number
}

/** Why an attempt failed. */
export interface AttemptError {
  /** A stable name, such as `http.503`. */
  type: string
  /** For people. */
  message: string
  /** For programs, of any format. */
  detail: string
  /** The stack. */
  stack: string
}

/** One attempt to run a task. */
export interface Attempt {
  /** Counts from 1, over redrives. */
  attemptNo: number
  startedAt: Date | undefined
  finishedAt: Date | undefined
  outcome: AttemptOutcome
  /** Unset for a success. */
  error: AttemptError | undefined
  workerId: string
  /** Above 0, this record stands for so many attempts. */
  foldedCount: number
}

/** A task as the server knows it. */
export interface Task {
  id: string
  queue: string
  handlerRef: string
  handlerVersion: string | undefined
  payload: Uint8Array
  contentType: string
  headers: Readonly<Record<string, string>>
  priority: number
  maxAttempts: number | undefined
  leaseMs: number | undefined
  initialBackoffMs: number | undefined
  retentionDeadMs: number | undefined
  status: TaskStatus
  /** Attempts spent since the last redrive. */
  attemptCount: number
  redriveCount: number
  /** How many leases ran out and were reclaimed. */
  leaseExpiredCount: number
  /** The last checkpoint of a handler. */
  progress: Uint8Array
  /** What the handler returned. */
  result: Uint8Array
  claimedAt: Date | undefined
  /** The worker that holds it; empty if none does. */
  claimedBy: string
  /** When it is due; unset once it is finished. */
  dueAt: Date | undefined
  leaseExpiresAt: Date | undefined
  expiresAt: Date | undefined
  createdAt: Date | undefined
  finishedAt: Date | undefined
  /** The history, oldest first. */
  attempts: Attempt[]
  /** The message as it came, with fields that this version of the client does not know. */
  raw: TaskMessage
}

const encoder = new TextEncoder()

/** Bytes as they are, text as UTF-8. */
export function toBytes(value: Uint8Array | string): Uint8Array {
  return typeof value === 'string' ? encoder.encode(value) : value
}

/** The message that admits a task; it has an id. */
export function toTaskMessage(input: TaskInput): TaskMessage {
  const init: MessageInitShape<typeof TaskSchema> = {
    id: input.id === undefined || input.id === '' ? ulid() : input.id,
    queue: input.queue,
    handlerRef: input.handlerRef,
    payload: toBytes(input.payload ?? ''),
    payloadContentType: input.contentType ?? '',
    headers: { ...input.headers },
    priority: input.priority ?? 0,
  }
  if (input.handlerVersion !== undefined) init.handlerVersion = input.handlerVersion
  if (input.delayMs !== undefined) init.delay = toDuration(input.delayMs, 'delayMs')
  if (input.dueAt !== undefined) init.nextAttemptAt = toTimestamp(input.dueAt, 'dueAt')
  if (input.expiresInMs !== undefined) init.expiresIn = toDuration(input.expiresInMs, 'expiresInMs')
  if (input.expiresAt !== undefined) init.expiresAt = toTimestamp(input.expiresAt, 'expiresAt')
  if (input.maxAttempts !== undefined) init.maxAttempts = input.maxAttempts
  if (input.leaseMs !== undefined) init.lease = toDuration(input.leaseMs, 'leaseMs')
  if (input.initialBackoffMs !== undefined) {
    init.initialBackoff = toDuration(input.initialBackoffMs, 'initialBackoffMs')
  }
  if (input.retentionDeadMs !== undefined) {
    init.retentionDead = toDuration(input.retentionDeadMs, 'retentionDeadMs')
  }
  return create(TaskSchema, init)
}

/** What a caller reads of a task. */
export function fromTaskMessage(raw: TaskMessage): Task {
  return {
    id: raw.id,
    queue: raw.queue,
    handlerRef: raw.handlerRef,
    handlerVersion: raw.handlerVersion,
    payload: raw.payload,
    contentType: raw.payloadContentType,
    headers: raw.headers,
    priority: raw.priority,
    maxAttempts: raw.maxAttempts,
    leaseMs: raw.lease && toMs(raw.lease),
    initialBackoffMs: raw.initialBackoff && toMs(raw.initialBackoff),
    retentionDeadMs: raw.retentionDead && toMs(raw.retentionDead),
    status: fromStatus(raw.status),
    attemptCount: raw.attemptCount,
    redriveCount: raw.redriveCount,
    leaseExpiredCount: raw.leaseExpiredCount,
    progress: raw.progress,
    result: raw.result,
    claimedAt: raw.claimedAt && toDate(raw.claimedAt),
    claimedBy: raw.claimedBy,
    dueAt: raw.nextAttemptAt && toDate(raw.nextAttemptAt),
    leaseExpiresAt: raw.leaseExpiresAt && toDate(raw.leaseExpiresAt),
    expiresAt: raw.expiresAt && toDate(raw.expiresAt),
    createdAt: raw.createdAt && toDate(raw.createdAt),
    finishedAt: raw.finishedAt && toDate(raw.finishedAt),
    attempts: raw.attempts.map(fromAttemptMessage),
    raw,
  }
}

/** One record of the history. */
export function fromAttemptMessage(raw: AttemptMessage): Attempt {
  const { error } = raw
  return {
    attemptNo: raw.attemptNo,
    startedAt: raw.startedAt && toDate(raw.startedAt),
    finishedAt: raw.finishedAt && toDate(raw.finishedAt),
    outcome: nameOf(AttemptOutcomeEnum, raw.outcome) as AttemptOutcome,
    error: error && {
      type: error.type,
      message: error.message,
      detail: error.detail,
      stack: error.stack,
    },
    workerId: raw.workerId,
    foldedCount: raw.foldedCount,
  }
}

/** A status by its name. */
export function fromStatus(status: TaskStatusEnum): TaskStatus {
  return nameOf(TaskStatusEnum, status) as TaskStatus
}

/** A status by its number. */
export function toStatus(status: TaskStatus): TaskStatusEnum {
  if (status === 'UNKNOWN') {
    throw new TypeError('UNKNOWN is no status to ask for')
  }
  return TaskStatusEnum[status]
}

function nameOf(names: Record<number, string>, value: number): string {
  return (value === 0 ? undefined : names[value]) ?? 'UNKNOWN'
}
