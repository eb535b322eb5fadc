/**
 * One stream from the server, of either kind: `Work`, or `ClaimDue` with `follow`. It carries; what is to be done is
 * decided by those who listen.
 */

import { create } from '@bufbuild/protobuf'
import { Code, errorOf, type RdqError } from '../errors.js'
import {
  type ClaimDueResponse,
  type ClaimedTask,
  ClaimDueRequestSchema,
  type ExtendLeaseRequest,
  type ExtendLeaseResult,
  type LostClaim,
  type Resolution,
  type ResolveResult,
  TaskService,
  type WorkRequest,
  WorkRequestSchema,
  type WorkResponse,
} from '../gen/rdq/v1/task_service_pb.js'
import { toDuration } from '../time.js'
import type { OpenStream, Transport } from '../transport.js'

/** A stream that carries nothing for so long is dead: the server sends something every 15 s. */
export const SILENCE_MAX_MS = 40_000

/** What a worker takes. */
export interface Intake {
  queues: readonly string[]
  workerId: string
  leaseMs: number | undefined
}

/** What a stream tells. */
export interface ClaimStreamEvents {
  /** Anything came. */
  alive(): void
  claims(tasks: ClaimedTask[]): void
  lost(claims: LostClaim[]): void
  draining(): void
  /** Called once, the last of all. */
  end(error: RdqError | undefined): void
}

/** What answers an outcome or a heartbeat; undefined: the stream ended before the answer. */
type OnResolved = (result: ResolveResult | undefined, streamError?: RdqError) => void
type OnExtended = (result: ExtendLeaseResult | undefined) => void

/** What every stream of claims can do. */
export interface ClaimStream {
  /** Whether outcomes and heartbeats can go by it. */
  readonly canSend: boolean
  /** Whether the server may be asked for claims. */
  readonly canGrant: boolean
  /** Claims that the server may still send on its own account. */
  readonly openCredits: number
  grant(credits: number): void
  sendOutcomes(outcomes: { resolution: Resolution; answer: OnResolved }[]): void
  sendHeartbeats(heartbeats: { extend: ExtendLeaseRequest; answer: OnExtended }[]): void
  /** Asks for no more claims. What is under way is still answered, where the stream can do that. */
  closeSend(): void
  cancel(): void
}

/** A watch over a stream that may fall silent. */
class Silence {
  readonly #timer: NodeJS.Timeout

  constructor(ms: number, isSilent: () => void) {
    this.#timer = setTimeout(isSilent, ms)
  }

  heard(): void {
    this.#timer.refresh()
  }

  end(): void {
    clearTimeout(this.#timer)
  }
}

function silent(ms: number): RdqError {
  const message = `the stream carried nothing for ${String(ms / 1000)} s`
  return errorOf({ code: Code.UNAVAILABLE, message })
}

/** A `Work` stream. */
export class WorkStream implements ClaimStream {
  readonly #call: OpenStream<WorkRequest>
  readonly #silence: Silence
  readonly #events: ClaimStreamEvents
  readonly #outcomes = new Map<bigint, OnResolved>()
  readonly #heartbeats = new Map<bigint, OnExtended>()
  #nextSeq = 1n
  #openCredits = 0
  #isSendClosed = false
  #isDraining = false
  #isOver = false

  constructor(
    transport: Transport,
    intake: Intake,
    events: ClaimStreamEvents,
    silenceMaxMs = SILENCE_MAX_MS,
  ) {
    this.#events = events
    this.#call = transport.bidi(TaskService.method.work, {
      message: (message) => {
        this.#receive(message)
      },
      end: (error) => {
        this.#end(error)
      },
    })
    this.#silence = new Silence(silenceMaxMs, () => {
      this.#end(silent(silenceMaxMs))
      this.#call.cancel()
    })
    const { queues, workerId, leaseMs } = intake
    const lease = leaseMs === undefined ? {} : { lease: toDuration(leaseMs, 'leaseMs') }
    this.#send({ start: { queues: [...queues], workerId, ...lease } })
  }

  get canSend(): boolean {
    return !this.#isSendClosed && !this.#isOver
  }

  get canGrant(): boolean {
    return this.canSend && !this.#isDraining
  }

  get openCredits(): number {
    return this.#openCredits
  }

  grant(credits: number): void {
    this.#openCredits += credits
    this.#send({ credits })
  }

  sendOutcomes(outcomes: { resolution: Resolution; answer: OnResolved }[]): void {
    this.#send({
      outcomes: outcomes.map(({ resolution, answer }) => {
        const seq = this.#seq()
        this.#outcomes.set(seq, answer)
        return { seq, resolution }
      }),
    })
  }

  sendHeartbeats(heartbeats: { extend: ExtendLeaseRequest; answer: OnExtended }[]): void {
    this.#send({
      heartbeats: heartbeats.map(({ extend, answer }) => {
        const seq = this.#seq()
        this.#heartbeats.set(seq, answer)
        return { seq, extend }
      }),
    })
  }

  closeSend(): void {
    if (this.canSend) {
      this.#isSendClosed = true
      this.#call.closeSend()
    }
  }

  cancel(): void {
    this.#end(undefined)
    this.#call.cancel()
  }

  #seq(): bigint {
    const seq = this.#nextSeq
    this.#nextSeq += 1n
    return seq
  }

  #send(message: Parameters<typeof create<typeof WorkRequestSchema>>[1]): void {
    this.#call.send(create(WorkRequestSchema, message))
  }

  #receive(message: WorkResponse): void {
    if (this.#isOver) {
      return
    }
    this.#silence.heard()
    this.#events.alive()
    for (const { seq, result } of message.outcomeAcks) {
      const answer = this.#outcomes.get(seq)
      if (result !== undefined && answer !== undefined) {
        this.#outcomes.delete(seq)
        answer(result)
      }
    }
    for (const { seq, result } of message.heartbeatAcks) {
      const answer = this.#heartbeats.get(seq)
      if (result !== undefined && answer !== undefined) {
        this.#heartbeats.delete(seq)
        answer(result)
      }
    }
    if (message.lost.length > 0) {
      this.#events.lost(message.lost)
    }
    if (message.tasks.length > 0) {
      this.#openCredits = Math.max(0, this.#openCredits - message.tasks.length)
      this.#events.claims(message.tasks)
    }
    if (message.draining) {
      // No more claims come; outcomes and heartbeats are answered until the server ends the stream.
      this.#isDraining = true
      this.#events.draining()
    }
  }

  #end(error: RdqError | undefined): void {
    if (this.#isOver) {
      return
    }
    this.#isOver = true
    this.#openCredits = 0
    this.#silence.end()
    const outcomes = [...this.#outcomes.values()]
    const heartbeats = [...this.#heartbeats.values()]
    this.#outcomes.clear()
    this.#heartbeats.clear()
    for (const answer of outcomes) {
      answer(undefined, error)
    }
    for (const answer of heartbeats) {
      answer(undefined)
    }
    this.#events.end(error)
  }
}

/** A subscription by `ClaimDue`. It carries claims alone. */
export class ClaimDueStream implements ClaimStream {
  readonly canSend = false
  readonly canGrant = false // the server counts what is in flight
  readonly openCredits = 0
  readonly #call: { cancel(): void }
  readonly #silence: Silence
  readonly #events: ClaimStreamEvents
  #isOver = false

  constructor(
    transport: Transport,
    intake: Intake,
    maxInFlight: number,
    events: ClaimStreamEvents,
    silenceMaxMs = SILENCE_MAX_MS,
  ) {
    this.#events = events
    const { queues, workerId, leaseMs } = intake
    const request = create(ClaimDueRequestSchema, {
      queues: [...queues],
      workerId,
      follow: true,
      maxInFlight,
      limit: maxInFlight,
      ...(leaseMs === undefined ? {} : { lease: toDuration(leaseMs, 'leaseMs') }),
    })
    this.#call = transport.subscribe(TaskService.method.claimDue, request, {
      message: (message) => {
        this.#receive(message)
      },
      end: (error) => {
        this.#end(error)
      },
    })
    this.#silence = new Silence(silenceMaxMs, () => {
      this.#end(silent(silenceMaxMs))
      this.#call.cancel()
    })
  }

  grant(): void {
    throw new Error('credits do not go by ClaimDue')
  }

  sendOutcomes(): void {
    throw new Error('outcomes do not go by ClaimDue')
  }

  sendHeartbeats(): void {
    throw new Error('heartbeats do not go by ClaimDue')
  }

  closeSend(): void {
    this.cancel()
  }

  cancel(): void {
    this.#end(undefined)
    this.#call.cancel()
  }

  #receive(message: ClaimDueResponse): void {
    if (this.#isOver) {
      return
    }
    this.#silence.heard()
    this.#events.alive()
    if (message.tasks.length > 0) {
      this.#events.claims(message.tasks)
    }
  }

  #end(error: RdqError | undefined): void {
    if (!this.#isOver) {
      this.#isOver = true
      this.#silence.end()
      this.#events.end(error)
    }
  }
}
