/** What a handler gets. */

import type { ClaimedTask } from '../gen/rdq/v1/task_service_pb.js'
import { type Attempt, fromAttemptMessage, fromTaskMessage, type Task, toBytes } from '../task.js'

/** The most that the server keeps of a checkpoint. */
const PROGRESS_BYTES_MAX = 64 * 1024

/** Why a handler was stopped; `signal.reason` of its AbortSignal. */
export type StopCause =
  /** Another worker holds the task now, or nobody does: drop the work. */
  | 'lost'
  /** The task was cancelled. */
  | 'cancelled'
  /** The task's `expiresAt` passed. */
  | 'expired'
  /** The queue's `execution.timeoutMs` passed; the attempt failed as `rdq.Timeout`. */
  | 'timeout'
  /** The worker's grace is over; the claim is given back. */
  | 'shutdown'

/** The reason with which a handler's signal is aborted. Whatever the handler does after
 * that is not recorded, but a success after `shutdown` if it comes before the claim was given back. */
export class HandlerStopped extends Error {
  constructor(
    /** Why. */
    readonly why: StopCause,
  ) {
    super(`the handler was stopped: ${why}`)
    this.name = 'HandlerStopped'
  }
}

/** One attempt to run a task. */
export class Claim {
  readonly #claimed: ClaimedTask
  readonly #raw: NonNullable<ClaimedTask['task']>
  readonly #keepProgress: (progress: Uint8Array) => void
  #task: Task | undefined

  /** @internal */
  constructor(
    claimed: ClaimedTask,
    raw: NonNullable<ClaimedTask['task']>,
    keepProgress: (progress: Uint8Array) => void,
  ) {
    this.#claimed = claimed
    this.#raw = raw
    this.#keepProgress = keepProgress
  }

  get id(): string {
    return this.#raw.id
  }

  get queue(): string {
    return this.#raw.queue
  }

  get handlerRef(): string {
    return this.#raw.handlerRef
  }

  /** The version of the handler that the producer meant. */
  get handlerVersion(): string | undefined {
    return this.#raw.handlerVersion
  }

  get payload(): Uint8Array {
    return this.#raw.payload
  }

  get contentType(): string {
    return this.#raw.payloadContentType
  }

  get headers(): Readonly<Record<string, string>> {
    return this.#raw.headers
  }

  /** The number that this attempt will have in the history. */
  get attemptNo(): number {
    return this.#claimed.attemptNo
  }

  /** How many attempts the task has before it is dead. */
  get maxAttempts(): number {
    return this.#claimed.maxAttempts
  }

  /** Grows with every claim of the task: hand it to systems that should refuse a slower, older worker. */
  get generation(): bigint {
    return this.#claimed.generation
  }

  /** The last checkpoint of an earlier attempt; empty if there is none. */
  get progress(): Uint8Array {
    return this.#raw.progress
  }

  /** Earlier attempts, the newest 100, without stacks and details. */
  get attempts(): Attempt[] {
    return this.#raw.attempts.map(fromAttemptMessage)
  }

  /** The whole task, as it was when it was claimed. */
  get task(): Task {
    this.#task ??= fromTaskMessage(this.#raw)
    return this.#task
  }

  /** The payload as text. */
  text(): string {
    return new TextDecoder().decode(this.payload)
  }

  /**
   * The payload parsed as JSON.
   *
   * @throws SyntaxError if it is none.
   */
  json(): unknown {
    return JSON.parse(this.text())
  }

  /**
   * Sets the checkpoint that a next attempt finds in `progress`. It is stored with the next heartbeat, and before a
   * failure is.
   *
   * @throws RangeError above 64 KiB.
   */
  setProgress(progress: Uint8Array | string): void {
    const bytes = toBytes(progress)
    if (bytes.length > PROGRESS_BYTES_MAX) {
      throw new RangeError(
        `progress has ${String(bytes.length)} bytes, above ${String(PROGRESS_BYTES_MAX)}`,
      )
    }
    // A copy: the handler may go on writing into its own.
    this.#keepProgress(new Uint8Array(bytes))
  }
}
