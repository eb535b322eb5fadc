/** Takes tasks, runs their handlers, and says how they ended. */

import { hostname } from 'node:os'
import { create } from '@bufbuild/protobuf'
import { Backoff } from '../backoff.js'
import { contractErrorOf } from '../contract.js'
import { Code, OtherContractVersionError, RdqError } from '../errors.js'
import {
  type ClaimedTask,
  GetCapabilitiesRequestSchema,
  type LostClaim,
  type Resolution,
  TaskService,
} from '../gen/rdq/v1/task_service_pb.js'
import { randomText } from '../ids.js'
import { TRY_MAX_MS } from '../retry.js'
import { sleep } from '../sleep.js'
import { inHandlerSpan } from '../telemetry.js'
import { now, TIMER_MAX_MS, toDuration, toMs } from '../time.js'
import type { Transport } from '../transport.js'
import { HeldClaim, keyOf, lossOf } from './held.js'
import { HandlerStopped, Claim, type StopCause } from './claim.js'
import { Keeper } from './keeper.js'
import { consoleLogger, type Logger } from './log.js'
import { Outbox } from './outbox.js'
import {
  type Ended,
  failureTypeOf,
  type Outcome,
  outcomeOf,
  Permanent,
  Success,
  TaskError,
  toRelease,
  toResolution,
} from './outcome.js'
import { type Handler, Routing } from './routing.js'
import { ClaimDueStream, type ClaimStream, type ClaimStreamEvents, WorkStream } from './stream.js'

const CONCURRENCY_DEFAULT = 10
const CONCURRENCY_MAX = 10_000
const GRACE_MS = 30_000
/** After the grace, `stop` waits so long for the answers to what it still had to say. */
const LAST_ANSWERS_MS = 5_000
/** A handler that is stopped by the end of the grace has so long to unwind before its claim is given back. */
const UNWIND_MS = 1_000
/** When nothing is held any more, a stream whose sending side is closed has so long to end. */
const STREAM_END_MS = 1_000
/** The type of the failure of a handler that ran too long. */
const TIMEOUT_TYPE = 'rdq.Timeout'
const BACKOFF_FIRST_MS = 100
const BACKOFF_MAX_MS = 10_000

/** Sees what a handler returned or threw before anyone else, and may say how the attempt ends. */
export type OutcomeMapper = (
  ended: Ended,
  claim: Claim,
) => Outcome | undefined | Promise<Outcome | undefined>

/** How a worker works. */
export interface WorkerOptions {
  /** The queues to take from, 1 to 64; taken from fairly. */
  queues: readonly string[]
  /** Handlers that run at once, 1 to 10,000; 10 if unset. */
  concurrency?: number
  /** Handlers by the task's `handlerRef`. More, and those of a version, come with `handle`. */
  handlers?: Readonly<Record<string, Handler>>
  /** How long the server lets each task go without a heartbeat, in milliseconds; the task's or the queue's if unset. */
  leaseMs?: number
  /** How long `stop` lets handlers go on, in milliseconds; 30 s if unset. */
  graceMs?: number
  /** Names the worker in attempts and listings; host, process id and random letters if unset. */
  workerId?: string
  /** Sees what a handler returned or threw first, and may answer another outcome. */
  outcomeMapper?: OutcomeMapper
  /**
   * By which call tasks are received. `auto`, the default: by `Work`, and by `ClaimDue` where `Work` is not known.
   */
  receive?: 'auto' | 'work' | 'claim_due'
  /** Where the worker says what happens to it; warnings and errors to standard error if unset. */
  logger?: Logger
}

/** Made by `RdqClient.worker`. */
export class Worker implements AsyncDisposable {
  /** Names the worker in attempts and listings. */
  readonly workerId: string

  readonly #transport: Transport
  readonly #options: WorkerOptions
  readonly #concurrency: number
  readonly #log: Logger
  readonly #onStopped: () => void
  readonly #routing = new Routing()
  readonly #outbox: Outbox
  readonly #keeper: Keeper

  /** Claims whose outcome is not answered yet, by their tokens. */
  readonly #claims = new Map<string, HeldClaim>()
  /** The newest claim of each task. */
  readonly #newest = new Map<string, HeldClaim>()
  /** Claims that arrived while no handler was free. */
  #waiting: HeldClaim[] = []
  /** Claims that have a handler that runs, or an outcome that is not answered. */
  #busy = 0
  #stream: ClaimStream | undefined
  /** Whether the server is known to speak this client's contract. */
  #isContractKnown = false
  /** Why the worker cannot work. */
  #failure: OtherContractVersionError | undefined
  #isGrantScheduled = false
  #receiving: Promise<void> | undefined
  #stopped: Promise<void> | undefined
  readonly #stopping = new AbortController()
  #whenIdle: (() => void) | undefined
  readonly #signals = new Map<NodeJS.Signals, () => void>()

  /** @internal */
  constructor(transport: Transport, options: WorkerOptions, onStopped: () => void) {
    this.#transport = transport
    this.#options = options
    this.#concurrency = options.concurrency ?? CONCURRENCY_DEFAULT
    const isWhole = Number.isInteger(this.#concurrency)
    if (!isWhole || this.#concurrency < 1 || this.#concurrency > CONCURRENCY_MAX) {
      throw new RangeError(
        `concurrency must be a whole number from 1 to ${String(CONCURRENCY_MAX)}`,
      )
    }
    if (options.leaseMs !== undefined) {
      toDuration(options.leaseMs, 'leaseMs')
    }
    this.#log = options.logger ?? consoleLogger
    this.#onStopped = onStopped
    this.workerId = options.workerId ?? `${hostname()}-${String(process.pid)}-${randomText(6)}`
    for (const [handlerRef, handler] of Object.entries(options.handlers ?? {})) {
      this.handle(handlerRef, handler)
    }
    const host = { transport, log: this.#log, stream: () => this.#stream }
    this.#outbox = new Outbox({
      ...host,
      settled: (claim) => {
        this.#over(claim)
      },
    })
    this.#keeper = new Keeper({
      ...host,
      lost: (claim, why) => {
        this.#lose(claim, why)
      },
    })
  }

  /**
   * Names the handler of a `handlerRef`, or of one version of it.
   *
   * @throws TypeError if there is one already.
   */
  handle(handlerRef: string, handler: Handler, options: { version?: string } = {}): this {
    this.#routing.add(handlerRef, options.version, handler)
    return this
  }

  /**
   * Begins to take tasks. A worker starts once. Of a server with another major version of the contract nothing is taken:
   * the log says so, and the worker stops; `run` rejects with it.
   */
  start(): this {
    if (this.#receiving !== undefined || this.#isStopping()) {
      throw new Error('a worker starts once')
    }
    this.#receiving = this.#receive()
    return this
  }

  /**
   * Works until it is stopped.
   *
   * @throws OtherContractVersionError if the server's contract has another major version.
   */
  async run(): Promise<void> {
    this.start()
    await this.#receiving
    await this.#stopped
    if (this.#failure !== undefined) {
      throw this.#failure
    }
  }

  /** Stops in order when the process gets one of these signals; a second one ends the process. */
  stopOnSignals(...signals: NodeJS.Signals[]): this {
    for (const signal of signals.length === 0 ? (['SIGTERM', 'SIGINT'] as const) : signals) {
      const stop = () => {
        void this.stop()
      }
      this.#signals.set(signal, stop)
      process.once(signal, stop)
    }
    return this
  }

  /**
   * Takes no more tasks and lets the handlers that run end, their leases extended. Those that still run when the grace
   * is over are stopped, and their claims given back. Resolves when every outcome is answered, or 5 s after the grace.
   */
  stop(options: { graceMs?: number } = {}): Promise<void> {
    this.#stopped ??= this.#stop(options.graceMs ?? this.#options.graceMs ?? GRACE_MS)
    return this.#stopped
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop()
  }

  // A function, since it changes while something is awaited.
  #isStopping(): boolean {
    return this.#stopping.signal.aborted
  }

  // ---- Receiving

  async #receive(): Promise<void> {
    const backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
    let byClaimDue = this.#options.receive === 'claim_due'
    while (!this.#isStopping()) {
      const refusal = await this.#contractRefusal()
      if (this.#isStopping()) {
        return
      }
      const error =
        refusal ??
        (await this.#connection(byClaimDue, () => {
          backoff.reset()
        }))
      if (this.#isStopping()) {
        return
      }
      if (error instanceof OtherContractVersionError) {
        const { message, clientVersion, serverVersion } = error
        this.#log.error(message, { workerId: this.workerId, clientVersion, serverVersion })
        this.#failure = error
        void this.stop()
        return
      }
      const isUnknown = error?.code === Code.UNIMPLEMENTED && !byClaimDue
      if (isUnknown && this.#options.receive !== 'work') {
        byClaimDue = true
        this.#log.warn('the server does not know Work; receiving by ClaimDue', {
          workerId: this.workerId,
        })
        continue
      }
      const fields = { workerId: this.workerId, code: error?.code, message: error?.message }
      // A server that goes or comes is nothing to wake anybody for.
      const isUsual = error === undefined || error.code === Code.UNAVAILABLE
      const what = refusal === undefined ? 'the stream ended' : 'the server does not answer'
      this.#log[isUsual ? 'info' : 'warn'](`${what}; connecting again`, fields)
      await sleep(backoff.nextMs(), this.#stopping.signal)
    }
  }

  /** Why no stream should be opened now: the server speaks another contract, or cannot be asked which. */
  async #contractRefusal(): Promise<RdqError | undefined> {
    if (this.#isContractKnown || this.#isStopping()) {
      return undefined
    }
    try {
      const { contractVersion } = await this.#transport.unary(
        TaskService.method.getCapabilities,
        create(GetCapabilitiesRequestSchema),
        TRY_MAX_MS,
        this.#stopping.signal,
      )
      this.#isContractKnown = true
      return contractErrorOf(contractVersion)
    } catch (error) {
      if (this.#isStopping()) {
        return undefined
      }
      if (!(error instanceof RdqError)) {
        throw error
      }
      if (error.code === Code.DEADLINE_EXCEEDED) {
        this.#transport.renew()
      }
      // Something on the way that does not let this call through may well let the stream.
      return error.retryable ? error : undefined
    }
  }

  /** One stream, from its opening to its end. It has a connection of its own. */
  #connection(byClaimDue: boolean, alive: () => void): Promise<RdqError | undefined> {
    return new Promise((resolve) => {
      const transport = this.#transport.fork()
      const events: ClaimStreamEvents = {
        alive,
        claims: (tasks) => {
          this.#arrived(tasks)
        },
        lost: (claims) => {
          this.#toldLost(claims)
        },
        draining: () => {
          this.#log.info('the server drains', { workerId: this.workerId })
        },
        end: (error) => {
          if (this.#stream === stream) {
            this.#stream = undefined
          }
          transport.close()
          resolve(error)
        },
      }
      const intake = {
        queues: this.#options.queues,
        workerId: this.workerId,
        leaseMs: this.#options.leaseMs,
      }
      const stream: ClaimStream = byClaimDue
        ? new ClaimDueStream(transport, intake, this.#concurrency, events)
        : new WorkStream(transport, intake, events)
      this.#stream = stream
      this.#grant()
    })
  }

  /** Lets the server send as many tasks as there are free handlers. */
  #grant(): void {
    const stream = this.#stream
    if (stream?.canGrant === true && !this.#isStopping()) {
      const credits = this.#concurrency - this.#busy - this.#waiting.length - stream.openCredits
      if (credits > 0) {
        stream.grant(credits)
      }
    }
  }

  #grantSoon(): void {
    if (!this.#isGrantScheduled) {
      this.#isGrantScheduled = true
      setImmediate(() => {
        this.#isGrantScheduled = false
        this.#grant()
      })
    }
  }

  #arrived(tasks: ClaimedTask[]): void {
    const arrivedAt = now()
    for (const claimed of tasks) {
      const { task } = claimed
      if (task === undefined || this.#claims.has(keyOf(claimed.claimToken))) {
        continue
      }
      const claim = new HeldClaim(claimed, task, arrivedAt)
      const older = this.#newest.get(claim.id)
      if (older !== undefined) {
        this.#lose(older, 'lost')
      }
      this.#claims.set(claim.key, claim)
      this.#newest.set(claim.id, claim)
      this.#waiting.push(claim)
    }
    this.#startWaiting()
  }

  #startWaiting(): void {
    while (this.#waiting.length > 0) {
      const isDraining = this.#isStopping()
      if (!isDraining && this.#busy >= this.#concurrency) {
        return
      }
      const claim = this.#waiting.shift()
      if (claim?.phase !== 'held') {
        continue // lost while it waited
      }
      this.#busy += 1
      if (isDraining || !claim.isStartable()) {
        this.#log.debug('a claim is given back unstarted', { taskId: claim.id })
        this.#end(claim, toRelease(claim))
      } else {
        this.#keeper.add(claim)
        void this.#begin(claim)
      }
    }
  }

  // ---- Running

  async #begin(held: HeldClaim): Promise<void> {
    const { raw, claimed } = held
    const route = this.#routing.route(raw.handlerRef, raw.handlerVersion, claimed.versionMismatch)
    if (route.case === 'deadLetter') {
      this.#log.warn('a task has no handler here', { taskId: held.id, message: route.message })
      const outcome = new Permanent(route.message, { type: route.errorType })
      this.#end(held, toResolution(held, outcome))
      return
    }
    const claim = new Claim(claimed, raw, (progress) => {
      held.progress = progress
    })
    held.isRunning = true
    const limit = this.#limit(held)
    const ended = await this.#run(route.handler, claim, held.stopper.signal)
    clearTimeout(limit)
    const outcome = held.phase === 'held' ? await this.#decide(ended, claim) : undefined
    held.isRunning = false
    // Of a handler that the end of the grace stopped, only a success counts; else its claim is given back.
    const counts = held.stopCause !== 'shutdown' || outcome instanceof Success
    if (outcome !== undefined && counts && this.#isHeld(held)) {
      this.#settle(held, outcome)
    }
    this.#freed(held)
  }

  // A function of its own, since the phase changes while something is awaited.
  #isHeld(claim: HeldClaim): boolean {
    return claim.phase === 'held'
  }

  async #run(handler: Handler, claim: Claim, signal: AbortSignal): Promise<Ended> {
    const about = {
      queue: claim.queue,
      taskId: claim.id,
      attemptNo: claim.attemptNo,
      handlerRef: claim.handlerRef,
      headers: claim.headers,
    }
    const run = async (): Promise<Ended> => {
      try {
        return { ok: true, value: await handler(claim, signal) }
      } catch (error) {
        return { ok: false, error }
      }
    }
    return inHandlerSpan(about, run, (ended) => {
      const { reason } = signal as { reason: unknown }
      if (reason instanceof HandlerStopped) {
        return reason.why === 'timeout' ? TIMEOUT_TYPE : undefined // else nothing is recorded
      }
      return failureTypeOf(outcomeOf(ended))
    })
  }

  async #decide(ended: Ended, claim: Claim): Promise<Outcome> {
    const { outcomeMapper } = this.#options
    if (outcomeMapper === undefined) {
      return outcomeOf(ended)
    }
    try {
      return (await outcomeMapper(ended, claim)) ?? outcomeOf(ended)
    } catch (error) {
      return outcomeOf({ ok: false, error })
    }
  }

  /** Stops the handler when the queue's timeout is over. */
  #limit(claim: HeldClaim): NodeJS.Timeout | undefined {
    const { executionTimeout } = claim.claimed
    if (executionTimeout === undefined) {
      return undefined
    }
    const timeoutMs = toMs(executionTimeout)
    const limitMs = Math.max(0, claim.claimedAt + timeoutMs - timeoutMarginMs(timeoutMs) - now())
    return setTimeout(
      () => {
        if (claim.phase === 'held') {
          const message = `the handler ran longer than ${String(timeoutMs)} ms`
          claim.stop('timeout')
          this.#settle(claim, new TaskError(TIMEOUT_TYPE, message))
        }
      },
      Math.min(limitMs, TIMER_MAX_MS),
    )
  }

  // ---- Ending

  /** Says how an attempt ended; a checkpoint that the next attempt may want goes first. */
  #settle(claim: HeldClaim, outcome: Outcome): void {
    let resolution: Resolution
    try {
      resolution = toResolution(claim, outcome)
    } catch (error) {
      resolution = toResolution(claim, error instanceof Error ? error : new Error(String(error)))
    }
    if (claim.progress === undefined || resolution.call.case === 'complete') {
      this.#end(claim, resolution)
    } else {
      claim.phase = 'ending'
      void this.#keeper.saveProgress(claim).then(() => {
        this.#end(claim, resolution)
      })
    }
  }

  #end(claim: HeldClaim, resolution: Resolution): void {
    claim.phase = 'ending'
    this.#outbox.add(claim, resolution)
  }

  #toldLost(lost: LostClaim[]): void {
    for (const { id, generation, detail } of lost) {
      const claim = this.#newest.get(id)
      if (claim?.claimed.generation === generation) {
        this.#lose(claim, lossOf(detail))
      }
    }
  }

  /** The claim is gone: its handler is stopped, and has no outcome. */
  #lose(claim: HeldClaim, why: StopCause): void {
    if (claim.phase !== 'held') {
      return // the answer to its outcome says it
    }
    this.#log.info('a claim was lost', { taskId: claim.id, why })
    const hasSlot = claim.isRunning
    this.#forget(claim)
    claim.stop(why)
    if (!hasSlot) {
      this.#waiting = this.#waiting.filter((waiting) => waiting !== claim)
      this.#grantSoon()
    }
  }

  /** The outcome is answered. */
  #over(claim: HeldClaim): void {
    this.#forget(claim)
    this.#freed(claim)
  }

  #forget(claim: HeldClaim): void {
    claim.phase = 'over'
    this.#keeper.remove(claim)
    this.#claims.delete(claim.key)
    if (this.#newest.get(claim.id) === claim) {
      this.#newest.delete(claim.id)
    }
    if (this.#claims.size === 0) {
      this.#whenIdle?.()
    }
  }

  /** A handler is free when nothing of it runs and its outcome is answered. */
  #freed(claim: HeldClaim): void {
    if (!claim.isRunning && claim.phase === 'over' && !claim.isFreed) {
      claim.isFreed = true
      this.#busy -= 1
      this.#startWaiting()
      this.#grantSoon()
    }
  }

  // ---- Stopping

  async #stop(graceMs: number): Promise<void> {
    const graceEnd = now() + graceMs
    const end = graceEnd + LAST_ANSWERS_MS
    this.#stopping.abort()
    for (const [signal, stop] of this.#signals) {
      process.removeListener(signal, stop)
    }
    this.#stream?.closeSend()
    this.#startWaiting() // gives back what did not start
    await this.#drainedUntil(graceEnd)
    const late = [...this.#claims.values()].filter((claim) => claim.phase === 'held')
    for (const claim of late) {
      claim.stop('shutdown')
      void this.#giveBack(claim)
    }
    await this.#drainedUntil(end)
    this.#stream?.cancel()
    this.#outbox.close()
    this.#keeper.close()
    await this.#receiving
    this.#onStopped()
  }

  /** Resolves when nothing is held and the stream has ended, or was given up; at the latest at `end`. */
  async #drainedUntil(end: number): Promise<void> {
    const ended = new AbortController()
    void this.#receiving?.then(() => {
      ended.abort()
    })
    while (now() < end) {
      await this.#idleUntil(end)
      // Claims that were on their way arrive before the stream ends. A server that cannot be reached does not end it.
      if (this.#stream !== undefined) {
        await sleep(Math.max(0, Math.min(STREAM_END_MS, end - now())), ended.signal)
      }
      if (this.#claims.size === 0) {
        this.#stream?.cancel()
        return
      }
    }
  }

  async #giveBack(claim: HeldClaim): Promise<void> {
    const until = now() + UNWIND_MS
    while (claim.isRunning && now() < until) {
      await sleep(5)
    }
    if (!this.#isHeld(claim)) {
      return // it succeeded after all, or was lost
    }
    claim.phase = 'ending' // whatever it still returns is not its outcome
    if (claim.progress !== undefined) {
      await this.#keeper.saveProgress(claim)
    }
    this.#end(claim, toRelease(claim))
  }

  async #idleUntil(end: number): Promise<void> {
    if (this.#claims.size === 0) {
      return
    }
    const idle = new AbortController()
    this.#whenIdle = () => {
      idle.abort()
    }
    await sleep(Math.min(Math.max(end - now(), 0), TIMER_MAX_MS), idle.signal)
    this.#whenIdle = undefined
  }
}

/**
 * The server lets no claim live longer than the queue's timeout, so the handler is stopped a little before it: else
 * another worker may have the task before this one said why it stopped.
 */
export function timeoutMarginMs(timeoutMs: number): number {
  return Math.min(timeoutMs / 10, 1_000)
}
