/** Locks: renewed in the background, and told when they are lost. */

import type { RdqClient } from './client.js'
import { Backoff } from './backoff.js'
import { Code, LockLostError, RdqError } from './errors.js'
import {
  LockService,
  type RenewResponse,
  type TryLockResponse,
} from './gen/rdq/v1/lock_service_pb.js'
import { workerId } from './ids.js'
import { sleep } from './sleep.js'
import { now, toDuration, toMs } from './time.js'
import { TRY_MAX_MS } from './retry.js'
import { consoleLogger, type Logger } from './worker/log.js'

const TTL_MS = 30_000
const BACKOFF_FIRST_MS = 100
const BACKOFF_MAX_MS = 1_000
const RELEASE_MAX_MS = 5_000
const GIVE_BACK_MAX_MS = 1_000

/** How a lock is acquired and held. */
export interface LockOptions {
  /** How long a hold lasts without a renewal, in milliseconds; 30 s if unset. Renewed at a third of it. */
  ttlMs?: number
  /** How long to wait while somebody else holds it, in milliseconds; not at all if unset. */
  waitMs?: number
  /** Who holds it; a new name if unset. Two who share an owner share the lock. */
  owner?: string
  /** Ends the waiting; `lock` rejects with its reason. */
  signal?: AbortSignal
  logger?: Logger
}

/**
 * A lock that is held, until it is released or lost. `signal` is aborted, with a {@link LockLostError}, when it is lost:
 * no later than the hold's end at the server, unless something blocks the event loop or stops the process. So hand
 * `generation` to what the lock guards, and let that refuse lower ones.
 */
export class Lock implements AsyncDisposable {
  /** The hold's fencing number, which grows with every acquisition of the name. */
  readonly generation: bigint
  readonly #lost = new AbortController()
  readonly #ended = new AbortController()
  #end: number
  #sent: number

  private constructor(
    private readonly client: RdqClient,
    readonly name: string,
    readonly owner: string,
    private readonly ttlMs: number,
    private readonly log: Logger,
    held: Held,
  ) {
    this.generation = held.generation
    this.#end = held.end
    this.#sent = held.sent
    void this.#keep()
  }

  /** @internal */
  static async acquire(
    client: RdqClient,
    name: string,
    options: LockOptions,
  ): Promise<Lock | undefined> {
    const ttlMs = options.ttlMs ?? TTL_MS
    if (!(ttlMs > 0)) {
      throw new RangeError('ttlMs must be above zero')
    }
    const owner = options.owner ?? workerId()
    const log = options.logger ?? consoleLogger
    const until = now() + (options.waitMs ?? 0)
    const backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
    const ttl = toDuration(ttlMs, 'ttlMs')
    const calls = options.signal === undefined ? {} : { signal: options.signal }
    try {
      for (;;) {
        options.signal?.throwIfAborted()
        // Counted from before the try that is answered, and not from before the first.
        const held = await client.retried(async (tryMs) => {
          const sent = now()
          const answer = await client.callOnce(
            LockService.method.tryLock,
            { name, owner, ttl },
            { ...calls, deadlineMs: tryMs },
          )
          return answer.acquired ? heldOf(answer, sent, ttlMs) : undefined
        }, calls)
        if (held !== undefined) {
          return new Lock(client, name, owner, ttlMs, log, held)
        }
        const left = until - now()
        if (left <= 0) {
          return undefined
        }
        await sleep(Math.min(backoff.nextMs(), left), options.signal)
      }
    } catch (error) {
      // It may be held all the same, by nobody who knows.
      await release(client, log, { name, owner }, GIVE_BACK_MAX_MS)
      throw error
    }
  }

  /** Aborted when the lock is lost, with a {@link LockLostError} as its reason. */
  get signal(): AbortSignal {
    return this.#lost.signal
  }

  get isLost(): boolean {
    return this.#lost.signal.aborted
  }

  /** Ends the hold. Safe to repeat. One that fails is logged: the hold ends by itself then. */
  async release(): Promise<void> {
    if (this.#ended.signal.aborted) {
      return
    }
    this.#ended.abort()
    const left = this.#end - now()
    if (!this.isLost && left > 0) {
      const { name, owner, generation } = this
      await release(
        this.client,
        this.log,
        { name, owner, generation },
        Math.min(left, RELEASE_MAX_MS),
      )
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }

  /** Renews until it is released or lost. */
  async #keep(): Promise<void> {
    const { signal: ended } = this.#ended
    let due = this.#sent + this.ttlMs / 3
    let cause: unknown
    while (!ended.aborted) {
      const time = now()
      if (time >= this.#end) {
        this.#lose(cause)
        return
      }
      if (time < due) {
        await sleep(Math.min(due, this.#end) - time, ended)
        continue
      }
      try {
        if (!(await this.#renew(this.#end - time))) {
          if (!this.#ended.signal.aborted) {
            this.#lose(undefined)
          }
          return
        }
        cause = undefined
        due = this.#sent + this.ttlMs / 3
      } catch (error) {
        cause = error
        due = now() + this.ttlMs / 10
      }
    }
  }

  async #renew(left: number): Promise<boolean> {
    const { name, owner, generation } = this
    const sent = now()
    // The answer is not awaited beyond the end, whatever becomes of the call.
    const late = new AbortController()
    const timer = setTimeout(() => {
      late.abort(new Error('not answered before the end of the hold'))
    }, left)
    try {
      const answer = await this.client.callOnce(
        LockService.method.renew,
        { name, owner, generation, ttl: toDuration(this.ttlMs, 'ttlMs') },
        {
          deadlineMs: Math.min(TRY_MAX_MS, left),
          signal: AbortSignal.any([late.signal, this.#ended.signal]),
        },
      )
      if (answer.renewed) {
        const held = heldOf(answer, sent, this.ttlMs)
        this.#sent = held.sent
        this.#end = held.end
      }
      return answer.renewed
    } finally {
      clearTimeout(timer)
    }
  }

  #lose(cause: unknown): void {
    this.log.warn('a lock is lost', { name: this.name, cause: String(cause) })
    const message = `${JSON.stringify(this.name)} is held no more`
    this.#lost.abort(new LockLostError({ code: Code.ABORTED, reason: 'LOCK_LOST', message, cause }))
  }
}

interface Held {
  generation: bigint
  sent: number
  end: number
}

function heldOf(answer: TryLockResponse | RenewResponse, sent: number, ttlMs: number): Held {
  const { generation, remaining } = answer
  const left = remaining === undefined ? 0 : toMs(remaining)
  return { generation, sent, end: sent + Math.min(left, ttlMs) }
}

async function release(
  client: RdqClient,
  log: Logger,
  hold: { name: string; owner: string; generation?: bigint },
  deadlineMs: number,
): Promise<void> {
  try {
    await client.call(LockService.method.release, hold, { deadlineMs })
  } catch (error) {
    if (!(error instanceof RdqError)) {
      throw error
    }
    log.warn('a lock was not released and ends by itself', {
      ...{ name: hold.name, error: String(error) },
    })
  }
}
