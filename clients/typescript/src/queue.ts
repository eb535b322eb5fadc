/** Queues as an operator writes and reads them. */

import { create, type MessageInitShape } from '@bufbuild/protobuf'
import type { Duration } from '@bufbuild/protobuf/wkt'
import {
  HandlerVersionMismatch,
  type QueueStats as QueueStatsMessage,
} from './gen/rdq/v1/task_service_pb.js'
import {
  type Queue as QueueMessage,
  type QueueConfig as QueueConfigMessage,
  QueueConfigSchema,
} from './gen/rdq/v1/queue_service_pb.js'
import { toDate, toDuration, toMs } from './time.js'

/** A queue's configuration. What is unset is inherited. */
export interface QueueConfig {
  /** When and how often a failed task runs again. */
  retry?: {
    maxAttempts?: number
    initialBackoffMs?: number
    multiplier?: number
    maxBackoffMs?: number
    /** From 0 to 1: the share of a delay by which it varies. */
    jitter?: number
  }
  /** Globs on the type of an error: which failures may run again. */
  classification?: { retryable?: string[]; permanent?: string[] }
  /** How long a worker holds a task. */
  execution?: {
    leaseMs?: number
    /** No claim is held longer. */
    timeoutMs?: number
    /** Refuse every call under a lease that ran out, reclaimed or not. */
    strictLeases?: boolean
  }
  limits?: { maxPayloadBytes?: number }
  /** How long finished tasks are kept; zero: not at all. */
  retention?: { succeededMs?: number; cancelledMs?: number; deadMs?: number }
  /** What a worker does with a task whose version of the handler it does not have. */
  handler?: { versionMismatch?: 'run_latest' | 'dead_letter' }
  /** True stops claims; admission goes on. */
  paused?: boolean
}

/** A queue and its configuration. */
export interface Queue {
  name: string
  /** What is stored; unset if nothing is. */
  config: QueueConfig | undefined
  /** What is in force. */
  effective: QueueConfig
  /** When the configuration was stored. */
  updatedAt: Date | undefined
}

/** A snapshot of one queue. */
export interface QueueStats {
  queue: string
  /** `ready` and `delayed` together. */
  pending: number
  ready: number
  delayed: number
  inFlight: number
  /** In flight, with a lease that ran out and that nobody reclaimed yet. */
  lapsed: number
  dlqDepth: number
  succeeded: number
  cancelled: number
  /** How long the oldest due task has been due, in milliseconds; unset if none is. */
  oldestPendingAgeMs: number | undefined
}

type Init = MessageInitShape<typeof QueueConfigSchema>

/** The message that stores a configuration. */
export function toQueueConfigMessage(config: QueueConfig): QueueConfigMessage {
  const { retry, classification, execution, limits, retention, handler } = config
  const init: Init = {}
  if (retry !== undefined) {
    init.retry = defined({
      maxAttempts: retry.maxAttempts,
      initialBackoff: duration(retry.initialBackoffMs, 'retry.initialBackoffMs'),
      multiplier: retry.multiplier,
      maxBackoff: duration(retry.maxBackoffMs, 'retry.maxBackoffMs'),
      jitter: retry.jitter,
    })
  }
  if (classification !== undefined) {
    init.classification = defined({ ...classification })
  }
  if (execution !== undefined) {
    init.execution = defined({
      lease: duration(execution.leaseMs, 'execution.leaseMs'),
      timeout: duration(execution.timeoutMs, 'execution.timeoutMs'),
      strictLeases: execution.strictLeases,
    })
  }
  if (limits?.maxPayloadBytes !== undefined) {
    init.limits = { maxPayloadBytes: BigInt(limits.maxPayloadBytes) }
  }
  if (retention !== undefined) {
    init.retention = defined({
      succeeded: duration(retention.succeededMs, 'retention.succeededMs'),
      cancelled: duration(retention.cancelledMs, 'retention.cancelledMs'),
      dead: duration(retention.deadMs, 'retention.deadMs'),
    })
  }
  if (handler?.versionMismatch !== undefined) {
    init.handler = {
      versionMismatch:
        handler.versionMismatch === 'dead_letter'
          ? HandlerVersionMismatch.DEAD_LETTER
          : HandlerVersionMismatch.RUN_LATEST,
    }
  }
  if (config.paused !== undefined) {
    init.paused = config.paused
  }
  return create(QueueConfigSchema, init)
}

/** What an operator reads of a queue. */
export function fromQueueMessage(raw: QueueMessage): Queue {
  return {
    name: raw.name,
    config: raw.config && fromQueueConfigMessage(raw.config),
    effective: raw.effective === undefined ? {} : fromQueueConfigMessage(raw.effective),
    updatedAt: raw.updatedAt && toDate(raw.updatedAt),
  }
}

function fromQueueConfigMessage(raw: QueueConfigMessage): QueueConfig {
  const { retry, classification, execution, limits, retention, handler } = raw
  return defined({
    retry:
      retry &&
      defined({
        maxAttempts: retry.maxAttempts,
        initialBackoffMs: retry.initialBackoff && toMs(retry.initialBackoff),
        multiplier: retry.multiplier,
        maxBackoffMs: retry.maxBackoff && toMs(retry.maxBackoff),
        jitter: retry.jitter,
      }),
    classification: classification && {
      retryable: classification.retryable,
      permanent: classification.permanent,
    },
    execution:
      execution &&
      defined({
        leaseMs: execution.lease && toMs(execution.lease),
        timeoutMs: execution.timeout && toMs(execution.timeout),
        strictLeases: execution.strictLeases,
      }),
    limits:
      limits &&
      defined({
        maxPayloadBytes:
          limits.maxPayloadBytes === undefined ? undefined : Number(limits.maxPayloadBytes),
      }),
    retention:
      retention &&
      defined({
        succeededMs: retention.succeeded && toMs(retention.succeeded),
        cancelledMs: retention.cancelled && toMs(retention.cancelled),
        deadMs: retention.dead && toMs(retention.dead),
      }),
    handler: handler && defined({ versionMismatch: mismatch(handler.versionMismatch) }),
    paused: raw.paused,
  })
}

function mismatch(value: HandlerVersionMismatch): 'run_latest' | 'dead_letter' | undefined {
  switch (value) {
    case HandlerVersionMismatch.UNSPECIFIED:
      return undefined
    case HandlerVersionMismatch.DEAD_LETTER:
      return 'dead_letter'
    default:
      return 'run_latest'
  }
}

/** What a caller reads of the counts. */
export function fromStatsMessage(raw: QueueStatsMessage): QueueStats {
  return {
    queue: raw.queue,
    pending: Number(raw.pending),
    ready: Number(raw.ready),
    delayed: Number(raw.delayed),
    inFlight: Number(raw.inFlight),
    lapsed: Number(raw.lapsed),
    dlqDepth: Number(raw.dlqDepth),
    succeeded: Number(raw.succeeded),
    cancelled: Number(raw.cancelled),
    oldestPendingAgeMs: raw.oldestPendingAge && toMs(raw.oldestPendingAge),
  }
}

function duration(ms: number | undefined, name: string): Duration | undefined {
  return ms === undefined ? undefined : toDuration(ms, name)
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> }

/** Without the keys whose value is undefined: unset and undefined are one. */
function defined<T extends object>(object: T): Defined<T> {
  const entries = Object.entries(object).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as Defined<T>
}
