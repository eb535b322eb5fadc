/** Extends the leases of the claims that a worker holds, each at a third of it. */

import { create } from '@bufbuild/protobuf'
import { cut } from '../batches.js'
import { Code, errorOfItem, RdqError } from '../errors.js'
import {
  type ExtendLeaseRequest,
  ExtendLeaseRequestSchema,
  ExtendLeasesRequestSchema,
  type ExtendLeaseResult,
  TaskService,
} from '../gen/rdq/v1/task_service_pb.js'
import { TRY_MAX_MS } from '../retry.js'
import { now, TIMER_MAX_MS, toMs } from '../time.js'
import type { Transport } from '../transport.js'
import { type Claim, lossOf } from './claim.js'
import type { StopCause } from './job.js'
import type { Logger } from './log.js'
import type { Session } from './session.js'

/** One message of heartbeats. */
const BOUNDS = { itemsMax: 1_000, bytesMax: 3 * 1024 * 1024 }
/** A call for heartbeats has a third of the lease, but not less than this. */
const CALL_MIN_MS = 500

/** What a keeper needs of its worker. */
export interface KeeperHost {
  readonly transport: Transport
  readonly log: Logger
  /** The stream of now, if there is one. */
  session(): Session | undefined
  /** The claim is gone. */
  lost(claim: Claim, why: StopCause): void
}

/** The claims to keep. */
export class Keeper {
  readonly #host: KeeperHost
  readonly #claims = new Set<Claim>()
  #timer: NodeJS.Timeout | undefined
  #timerAt = Infinity

  constructor(host: KeeperHost) {
    this.#host = host
  }

  add(claim: Claim): void {
    this.#claims.add(claim)
    this.#arm(claim.nextBeatAt)
  }

  remove(claim: Claim): void {
    this.#claims.delete(claim)
    if (this.#claims.size === 0) {
      this.close()
    }
  }

  close(): void {
    clearTimeout(this.#timer)
    this.#timerAt = Infinity
  }

  /** Stores the checkpoint of a claim at once. Resolves when that is answered, or failed. */
  async saveProgress(claim: Claim): Promise<void> {
    await this.#call([claim])
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
    const due: Claim[] = []
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
    const session = this.#host.session()
    // Where the stream does not answer, another connection may.
    const goesByStream = (claim: Claim) => session?.canSend === true && claim.unansweredBeats < 2
    const byStream = due.filter(goesByStream)
    const byCall = due.filter((claim) => !goesByStream(claim) && !claim.isBeatCalled)
    for (const batch of cut(byStream, sizeOf, BOUNDS)) {
      session?.sendHeartbeats(
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

  async #call(batch: Claim[]): Promise<void> {
    const progresses = batch.map((claim) => claim.progress)
    const request = create(ExtendLeasesRequestSchema, { leases: batch.map(toRequest) })
    const leaseMs = Math.min(...batch.map((claim) => claim.leaseMs))
    const tryMs = Math.min(Math.max(leaseMs / 3, CALL_MIN_MS), TRY_MAX_MS)
    for (const claim of batch) {
      claim.isBeatCalled = true
    }
    try {
      const method = TaskService.method.extendLeases
      const { results } = await this.#host.transport.unary(method, request, tryMs)
      batch.forEach((claim, index) => {
        this.#answer(claim, progresses[index], results[index])
      })
    } catch (error) {
      if (!(error instanceof RdqError)) {
        throw error
      }
      if (error.code === Code.DEADLINE_EXCEEDED) {
        this.#host.transport.renew()
      }
      this.#host.log.debug('heartbeats failed', { reason: error.reason, message: error.message })
    } finally {
      for (const claim of batch) {
        claim.isBeatCalled = false
      }
    }
  }

  #answer(
    claim: Claim,
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
        this.#host.lost(claim, lossOf(error.metadata['detail']))
      } else if (error.code === Code.INVALID_ARGUMENT && sentProgress !== undefined) {
        this.#host.log.error('progress was refused', { taskId: claim.id, reason, message })
        if (claim.progress === sentProgress) {
          claim.progress = undefined
        }
      } else {
        this.#host.log.debug('a heartbeat failed', { taskId: claim.id, reason, message })
      }
    }
  }
}

function toRequest(claim: Claim): ExtendLeaseRequest {
  const { id, token: claimToken, progress } = claim
  return create(ExtendLeaseRequestSchema, {
    id,
    claimToken,
    ...(progress === undefined ? {} : { progress }),
  })
}

function sizeOf(claim: Claim): number {
  return 1024 + (claim.progress?.length ?? 0)
}
