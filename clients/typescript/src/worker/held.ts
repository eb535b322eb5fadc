/** A claim that this worker holds: what is known of its lease, its handler and its outcome. */

import type { ClaimedTask } from '../gen/rdq/v1/task_service_pb.js'
import { now, toMs } from '../time.js'
import { HandlerStopped, type StopCause } from './claim.js'

/** A handler is not started with less than this of its lease. */
const START_LEFT_MS = 100

/** A claim, known by its token. */
export class HeldClaim {
  readonly raw: NonNullable<ClaimedTask['task']>
  readonly id: string
  readonly token: Uint8Array
  readonly key: string
  /** The whole lease, in milliseconds. */
  readonly leaseMs: number
  /** When the claim was made, by the monotonic clock, as far as is known. */
  readonly claimedAt: number
  /** When the lease ends, by the monotonic clock, as far as is known. */
  leaseEndsAt: number
  /** When the lease is to be extended. */
  nextBeatAt: number
  /** Heartbeats that went since the last answer. */
  unansweredBeats = 0
  /** Whether a heartbeat is under way by a unary call. */
  isBeatCalled = false
  /** The checkpoint that the server does not have yet. */
  progress: Uint8Array | undefined
  /** Stops the handler. */
  readonly stopper = new AbortController()
  /** `held` until its outcome is decided, `ending` until that is answered, then `over`. */
  phase: 'held' | 'ending' | 'over' = 'held'
  /** Whether the place that it had among the running is given to others. */
  isFreed = false
  /** Whether a handler of it runs. */
  isRunning = false

  constructor(
    readonly claimed: ClaimedTask,
    raw: NonNullable<ClaimedTask['task']>,
    /** By the monotonic clock. */
    arrivedAt: number,
  ) {
    this.raw = raw
    this.id = raw.id
    this.token = claimed.claimToken
    this.key = keyOf(claimed.claimToken)
    const remainingMs = claimed.leaseRemaining === undefined ? 0 : toMs(claimed.leaseRemaining)
    const { leaseExpiresAt, claimedAt } = raw
    const grantedMs =
      leaseExpiresAt === undefined || claimedAt === undefined
        ? 0
        : Number(leaseExpiresAt.seconds - claimedAt.seconds) * 1000 +
          (leaseExpiresAt.nanos - claimedAt.nanos) / 1e6
    this.leaseMs = Math.max(grantedMs, remainingMs, 1)
    this.leaseEndsAt = arrivedAt + remainingMs
    this.claimedAt = this.leaseEndsAt - this.leaseMs
    // A third of the lease after it began.
    this.nextBeatAt = this.leaseEndsAt - (this.leaseMs * 2) / 3
  }

  /** Whether enough of the lease is left to start a handler. */
  isStartable(): boolean {
    const least = Math.min(Math.max(this.leaseMs / 10, START_LEFT_MS), this.leaseMs / 2)
    return this.leaseEndsAt - now() >= least
  }

  /** Why the handler was told to stop; undefined if it was not. */
  get stopCause(): StopCause | undefined {
    const reason: unknown = this.stopper.signal.reason
    return reason instanceof HandlerStopped ? reason.why : undefined
  }

  /** Tells the handler to stop. */
  stop(why: StopCause): void {
    this.stopper.abort(new HandlerStopped(why))
  }
}

/** A token as a key of a map. */
export function keyOf(token: Uint8Array): string {
  return Buffer.from(token.buffer, token.byteOffset, token.byteLength).toString('latin1')
}

/** Why a claim is over, from what the server says of it. */
export function lossOf(detail: string | undefined): StopCause {
  switch (detail) {
    case 'CANCELLED':
      return 'cancelled'
    case 'EXPIRED':
      return 'expired'
    default:
      return 'lost'
  }
}
