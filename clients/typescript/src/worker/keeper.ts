/** Extends the leases of the claims that a worker holds, each at a third of it. */

import { create } from '@bufbuild/protobuf'
import { Backoff } from '../backoff.js'
import { cut } from '../batches.js'
import { Code, errorOfItem, RdqError } from '../errors.js'
import {
  type ExtendLeaseRequest,
  ExtendLeaseRequestSchema,
  ExtendLeasesRequestSchema,
  type ExtendLeaseResult,
  TaskService,
} from '../gen/rdq/v1/task_service_pb.js'
import {
  ABOUT_REQUEST,
  BACKOFF_FIRST_MS,
  BACKOFF_MAX_MS,
  TRY_MAX_MS,
  waitBefore,
} from '../retry.js'
import { sleep } from '../sleep.js'
import { now, TIMER_MAX_MS, toMs } from '../time.js'
import type { Transport } from '../transport.js'
import { type HeldClaim, lossOf } from './held.js'
import type { StopCause } from './claim.js'
import type { Logger } from './log.js'
import type { ClaimStream } from './stream.js'

/** One message of heartbeats. */
const BOUNDS = { itemsMax: 1_000, bytesMax: 3 * 1024 * 1024 }
/** A call for heartbeats has a third of the lease, but not less than this. */
const CALL_MIN_MS = 500

/** What a keeper needs of its worker. */
export interface KeeperHost {
  readonly transport: Transport
  readonly log: Logger
  /** The stream of now, if there is one. */
  stream(): ClaimStream | undefined
  /** The claim is gone. */
  lost(claim: HeldClaim, why: StopCause): void
}

/** The claims to keep. */
export class Keeper {
  readonly #host: KeeperHost
  readonly #claims = new Set<HeldClaim>()
  readonly #closing = new AbortController()
  #timer: NodeJS.Timeout | undefined
  #timerAt = Infinity

  constructor(host: KeeperHost) {
    this.#host = host
  }

  add(claim: HeldClaim): void {
    this.#claims.add(claim)
    this.#arm(claim.nextBeatAt)
  }

  remove(claim: HeldClaim): void {
    this.#claims.delete(claim)
    if (this.#claims.size === 0) {
      this.#disarm()
    }
  }

  /** Ends for good. */
  close(): void {
    this.#closing.abort()
    this.#disarm()
  }

  /**
   * Stores the checkpoint of a claim, again until that is answered. Resolves when the server has it, will not have it,
   * or the claim is lost.
   */
  async saveProgress(claim: HeldClaim): Promise<void> {
    const { signal } = this.#closing
    const backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
    for (let tries = 0; claim.progress !== undefined && !signal.aborted; tries += 1) {
      const stream = this.#host.stream()
      // A server that drains answers by the stream alone. Where the stream does not answer, another connection may.
      const byStream = tries % 2 === 0 && stream?.canSend === true
      const error = await (byStream ? this.#beatByStream(stream, claim) : this.#call([claim]))
      if (error?.reason !== undefined && ABOUT_REQUEST.has(error.reason)) {
        this.#progressRefused(claim, claim.progress, error)
      } else if (this.#isUnsaved(claim)) {
        const backoffMs = backoff.nextMs()
        await sleep(error === undefined ? backoffMs : waitBefore(error, backoffMs), signal)
      }
    }
  }

  // A function of its own, since it changes while something is awaited.
  #isUnsaved(claim: HeldClaim): boolean {
    return claim.progress !== undefined
  }

  /** One heartbeat by the stream; resolves when it is answered, or has been waited for long enough. */
  #beatByStream(stream: ClaimStream, claim: HeldClaim): Promise<undefined> {
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer)
        this.#closing.signal.removeEventListener('abort', done)
        resolve(undefined)
      }
      const timer = setTimeout(done, tryMsOf(claim.leaseMs))
      this.#closing.signal.addEventListener('abort', done)
      const { progress } = claim
      const answer = (result: ExtendLeaseResult | undefined) => {
        this.#answer(claim, progress, result)
        done()
      }
      stream.sendHeartbeats([{ extend: toRequest(claim), answer }])
    })
  }

  #disarm(): void {
    clearTimeout(this.#timer)
    this.#timerAt = Infinity
  }

  #arm(at: number): void {
    if (at < this.#timerAt) {
      clearTimeout(this.#timer)
      this.#timerAt = at
      const waitMs = Math.min(Math.max(Math.ceil(at - now()), 1), TIMER_MAX_MS)
      this.#timer = setTimeout(() => {
        this.#timerAt = Infinity
        this.#beat()
      }, waitMs)
    }
  }

  /** All that are due, or nearly so, in one message. */
  #beat(): void {
    const time = now()
    const due: HeldClaim[] = []
    let nextAt = Infinity
    for (const claim of this.#claims) {
      if (claim.nextBeatAt - claim.leaseMs / 30 <= time) {
        claim.unansweredBeats += 1
        // Again in a tenth of the lease; an answer puts it off.
        claim.nextBeatAt = time + Math.max(claim.leaseMs / 10, 1)
        due.push(claim)
      }
      nextAt = Math.min(nextAt, claim.nextBeatAt)
    }
    if (nextAt !== Infinity) {
      this.#arm(nextAt)
    }
    const stream = this.#host.stream()
    // Where the stream does not answer, another connection may.
    const goesByStream = (claim: HeldClaim) => stream?.canSend === true && claim.unansweredBeats < 2
    const byStream = due.filter(goesByStream)
    const byCall = due.filter((claim) => !goesByStream(claim) && !claim.isBeatCalled)
    for (const batch of cut(byStream, sizeOf, BOUNDS)) {
      stream?.sendHeartbeats(
        batch.map((claim) => {
          const { progress } = claim
          return {
            extend: toRequest(claim),
            answer: (result) => {
              this.#answer(claim, progress, result)
            },
          }
        }),
      )
    }
    for (const batch of cut(byCall, sizeOf, BOUNDS)) {
      void this.#call(batch)
    }
  }

  /** Resolves to what the call was refused with, if it was. */
  async #call(batch: HeldClaim[]): Promise<RdqError | undefined> {
    const progresses = batch.map((claim) => claim.progress)
    const request = create(ExtendLeasesRequestSchema, { leases: batch.map(toRequest) })
    const leaseMs = Math.min(...batch.map((claim) => claim.leaseMs))
    for (const claim of batch) {
      claim.isBeatCalled = true
    }
    try {
      const method = TaskService.method.extendLeases
      const { results } = await this.#host.transport.unary(method, request, tryMsOf(leaseMs))
      batch.forEach((claim, index) => {
        this.#answer(claim, progresses[index], results[index])
      })
      return undefined
    } catch (error) {
      if (!(error instanceof RdqError)) {
        throw error
      }
      if (error.code === Code.DEADLINE_EXCEEDED) {
        this.#host.transport.renew()
      }
      this.#host.log.debug('heartbeats failed', { reason: error.reason, message: error.message })
      return error
    } finally {
      for (const claim of batch) {
        claim.isBeatCalled = false
      }
    }
  }

  #answer(
    claim: HeldClaim,
    sentProgress: Uint8Array | undefined,
    result: ExtendLeaseResult | undefined,
  ): void {
    if (result?.outcome.case === 'extended') {
      const time = now()
      const { leaseRemaining } = result.outcome.value
      if (leaseRemaining !== undefined) {
        claim.leaseEndsAt = time + toMs(leaseRemaining)
      }
      claim.unansweredBeats = 0
      claim.nextBeatAt = time + claim.leaseMs / 3
      if (claim.progress === sentProgress) {
        claim.progress = undefined
      }
    } else if (result?.outcome.case === 'error') {
      const error = errorOfItem(result.outcome.value)
      const { reason, message } = error
      if (reason === 'STALE_CLAIM' || reason === 'NOT_FOUND') {
        claim.progress = undefined // nobody is left to store it for
        this.#host.lost(claim, lossOf(error.metadata['detail']))
      } else if (
        sentProgress !== undefined &&
        (error.code === Code.INVALID_ARGUMENT || reason === 'PAYLOAD_TOO_LARGE')
      ) {
        this.#progressRefused(claim, sentProgress, error)
      } else {
        this.#host.log.debug('a heartbeat failed', { taskId: claim.id, reason, message })
      }
    }
  }

  #progressRefused(claim: HeldClaim, progress: Uint8Array, { reason, message }: RdqError): void {
    this.#host.log.error('progress was refused', { taskId: claim.id, reason, message })
    if (claim.progress === progress) {
      claim.progress = undefined
    }
  }
}

/** How long a heartbeat is waited for. */
function tryMsOf(leaseMs: number): number {
  return Math.min(Math.max(leaseMs / 3, CALL_MIN_MS), TRY_MAX_MS)
}

function toRequest(claim: HeldClaim): ExtendLeaseRequest {
  const { id, token: claimToken, progress } = claim
  return create(ExtendLeaseRequestSchema, {
    id,
    claimToken,
    ...(progress === undefined ? {} : { progress }),
  })
}

function sizeOf(claim: HeldClaim): number {
  return 1024 + (claim.progress?.length ?? 0)
}
