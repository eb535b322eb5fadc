/** Outcomes on their way: each is sent until it is answered, by the stream while there is one, else by `ResolveBatch`. */

import { create } from '@bufbuild/protobuf'
import { Backoff } from '../backoff.js'
import { cut } from '../batches.js'
import { Code, errorOfItem, RdqError } from '../errors.js'
import {
  ResolveBatchRequestSchema,
  type Resolution,
  type ResolveResult,
  TaskService,
} from '../gen/rdq/v1/task_service_pb.js'
import { ABOUT_REQUEST, BACKOFF_FIRST_MS, BACKOFF_MAX_MS, TRY_MAX_MS } from '../retry.js'
import type { Transport } from '../transport.js'
import { TIMER_MAX_MS } from '../time.js'
import type { HeldClaim } from './held.js'
import type { Logger } from './log.js'
import { TaskError, toResolution } from './outcome.js'
import type { ClaimStream } from './stream.js'

/** One message of outcomes. */
const BOUNDS = { itemsMax: 1_000, bytesMax: 3 * 1024 * 1024 }
/** A result above this is not even sent; the server's own limit is lower, and its to say. */
const RESULT_BYTES_MAX = 1024 * 1024

interface Entry {
  claim: HeldClaim
  resolution: Resolution
  /** Whether it was sent before, so that the answer may have been lost. */
  wasSent: boolean
  /** Whether it stands in for an outcome that was refused. */
  isSubstitute: boolean
  /** Not by a stream, and by itself: a message with it was refused as a whole. */
  isAlone: boolean
  backoff: Backoff
}

/** What an outbox needs of its worker. */
export interface OutboxHost {
  readonly transport: Transport
  readonly log: Logger
  /** The stream of now, if there is one. */
  stream(): ClaimStream | undefined
  /** The outcome is answered, or never will be. */
  settled(claim: HeldClaim): void
}

/** The outcomes that are not answered yet. */
export class Outbox {
  readonly #host: OutboxHost
  #queue: Entry[] = []
  #isScheduled = false
  #isClosed = false

  constructor(host: OutboxHost) {
    this.#host = host
  }

  /** Takes the outcome of a claim. */
  add(claim: HeldClaim, resolution: Resolution): void {
    const size = resultBytes(resolution)
    const isSendable = size <= RESULT_BYTES_MAX
    const message = `the result has ${String(size)} bytes`
    this.#push({
      claim,
      resolution: isSendable ? resolution : refused(claim, message),
      wasSent: false,
      isSubstitute: !isSendable,
      isAlone: false,
      backoff: new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS),
    })
    if (!isSendable) {
      this.#host.log.error('an outcome was refused', { taskId: claim.id, message })
    }
  }

  /** Gives up what is not answered. */
  close(): void {
    this.#isClosed = true
    this.#queue = []
  }

  #push(entry: Entry): void {
    if (this.#isClosed) {
      return
    }
    this.#queue.push(entry)
    if (!this.#isScheduled) {
      this.#isScheduled = true
      // What ends in one turn of the loop goes in one message.
      setImmediate(() => {
        this.#isScheduled = false
        this.#flush()
      })
    }
  }

  #pushLater(entry: Entry, atLeastMs = 0): void {
    const waitMs = Math.min(Math.max(entry.backoff.nextMs(), atLeastMs), TIMER_MAX_MS)
    setTimeout(() => {
      this.#push(entry)
    }, waitMs)
  }

  #flush(): void {
    const queue = this.#queue
    this.#queue = []
    const stream = this.#host.stream()
    const together = queue.filter((entry) => !entry.isAlone)
    for (const batch of cut(together, sizeOf, BOUNDS)) {
      if (stream?.canSend === true) {
        this.#sendByStream(stream, batch)
      } else {
        void this.#call(batch)
      }
    }
    for (const entry of queue) {
      if (entry.isAlone) {
        void this.#call([entry])
      }
    }
  }

  #sendByStream(stream: ClaimStream, batch: Entry[]): void {
    stream.sendOutcomes(
      batch.map((entry) => ({
        resolution: entry.resolution,
        answer: (result: ResolveResult | undefined, streamError?: RdqError) => {
          if (result === undefined) {
            entry.wasSent = true
            // Not again by a stream that may have ended because of it.
            entry.isAlone = streamError !== undefined && !isConnectionLoss(streamError)
            this.#push(entry)
          } else {
            this.#answer(entry, result)
          }
        },
      })),
    )
  }

  async #call(batch: Entry[]): Promise<void> {
    const request = create(ResolveBatchRequestSchema, {
      resolutions: batch.map((entry) => entry.resolution),
    })
    try {
      const method = TaskService.method.resolveBatch
      const { results } = await this.#host.transport.unary(method, request, TRY_MAX_MS)
      batch.forEach((entry, index) => {
        this.#answer(entry, results[index])
      })
    } catch (error) {
      if (!(error instanceof RdqError)) {
        throw error
      }
      this.#callFailed(batch, error)
    }
  }

  #callFailed(batch: Entry[], error: RdqError): void {
    if (error.code === Code.DEADLINE_EXCEEDED) {
      this.#host.transport.renew()
    }
    const isAboutRequest = error.reason !== undefined && ABOUT_REQUEST.has(error.reason)
    for (const entry of batch) {
      entry.wasSent ||= error.outcomeUnknown
      if (!isAboutRequest) {
        // Whatever it says, of credentials for instance, it does not say it of the outcome.
        this.#pushLater(entry, error.retryAfterMs)
      } else if (batch.length > 1) {
        entry.isAlone = true // which of them it was will show
        this.#push(entry)
      } else {
        this.#refusal(entry, error)
      }
    }
  }

  #answer(entry: Entry, result: ResolveResult | undefined): void {
    switch (result?.outcome.case) {
      case 'resolved':
        this.#host.settled(entry.claim)
        return
      case 'error': {
        const error = errorOfItem(result.outcome.value)
        entry.wasSent ||= error.outcomeUnknown
        if (isRepeated(error)) {
          this.#pushLater(entry)
        } else {
          this.#refusal(entry, error)
        }
        return
      }
      default:
        // An answer that lacks it, or says nothing: it may have been stored all the same.
        entry.wasSent = true
        this.#pushLater(entry)
    }
  }

  #refusal(entry: Entry, error: RdqError): void {
    const { claim } = entry
    const { log } = this.#host
    const fields = { taskId: claim.id, reason: error.reason, message: error.message }
    if (error.reason === 'STALE_CLAIM' || error.reason === 'NOT_FOUND') {
      if (error.reason === 'STALE_CLAIM' || !entry.wasSent) {
        log.warn('the claim was lost before its outcome was stored', fields)
      }
      this.#host.settled(claim)
    } else if (entry.isSubstitute) {
      log.error(
        'an outcome was refused for good; its task comes again when the lease is over',
        fields,
      )
      this.#host.settled(claim)
    } else {
      log.error('an outcome was refused', fields)
      this.#push({
        claim,
        resolution: refused(claim, error.message),
        wasSent: entry.wasSent,
        isSubstitute: true,
        isAlone: false,
        backoff: new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS),
      })
    }
  }
}

/** The failure that stands in for an outcome that the server does not take. */
function refused(claim: HeldClaim, message: string): Resolution {
  return toResolution(
    claim,
    new TaskError('rdq.OutcomeRefused', `the outcome was refused: ${message}`),
  )
}

function isRepeated(error: RdqError): boolean {
  return error.code === Code.ABORTED || error.retryable || isConnectionLoss(error)
}

/** Errors that say nothing of what was sent. */
function isConnectionLoss(error: RdqError): boolean {
  return (
    error.code === Code.UNAVAILABLE ||
    error.code === Code.DEADLINE_EXCEEDED ||
    error.code === Code.CANCELLED ||
    // An RST_STREAM, or a proxy's answer in place of the server's.
    (error.reason === undefined && (error.code === Code.INTERNAL || error.code === Code.UNKNOWN))
  )
}

function resultBytes({ call }: Resolution): number {
  return call.case === 'complete' ? call.value.result.length : 0
}

/** At least what an outcome has encoded. */
function sizeOf({ resolution: { call } }: Entry): number {
  const overhead = 1024
  switch (call.case) {
    case 'complete':
      return call.value.result.length + overhead
    case 'fail':
    case 'reschedule':
    case 'deadLetter': {
      const { type = '', message = '', detail = '', stack = '' } = call.value.attempt?.error ?? {}
      return 3 * (type.length + message.length + detail.length + stack.length) + overhead
    }
    default:
      return overhead
  }
}
