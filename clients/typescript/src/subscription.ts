/** Subscriptions: events of a stream, handled in order, with what was handled kept at the server. */

import { create } from '@bufbuild/protobuf'
import { Backoff } from './backoff.js'
import { Code, errorOf, RdqError } from './errors.js'
import {
  type StreamEvent,
  StreamService,
  type SubscribeResponse,
  SaveOffsetRequestSchema,
  SubscribeRequestSchema,
} from './gen/rdq/v1/stream_service_pb.js'
import { retrying, waitBefore } from './retry.js'
import { sleep } from './sleep.js'
import { now } from './time.js'
import type { Transport } from './transport.js'
import { consoleLogger, type Logger } from './worker/log.js'

const BACKOFF_FIRST_MS = 100
const BACKOFF_MAX_MS = 10_000
/** The server sends something every 15 s; a stream that is silent for so long is dropped. */
const SILENCE_MAX_MS = 40_000
/** Within a message what was handled is saved so often. */
const SAVE_MS = 1_000
/** At the end the last save has this long. */
const LAST_SAVE_MS = 5_000

/** Is given each event. What it throws ends the subscription. */
export type EventHandler = (event: StreamEvent) => Promise<void> | void

/** What a subscription reads, and as whom. */
export interface SubscriptionOptions {
  stream: string
  /** Who reads; what was handled is saved under this name. Two subscriptions of one consumer both get every event. */
  consumer: string
  handler: EventHandler
  /** Events in one message at most, up to 1,000; the server's 100 if unset. */
  limit?: number
  logger?: Logger
}

/** Carries what a handler threw past the errors of the stream. */
class HandlerFailed {
  constructor(readonly error: unknown) {}
}

/**
 * Reads a stream as a consumer, from what this consumer saved: what is there, then each event as it is published.
 *
 * Events are handled one at a time and in order, each at least once: the offset is saved after handlers that succeeded,
 * at the end of each message of the server and every second. What a handler throws ends the subscription, with nothing
 * saved beyond the event before; run another to begin with that event. A connection that breaks is made again.
 */
export class Subscription {
  readonly #backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
  readonly #log: Logger
  #hasRun = false
  #handled: bigint | undefined
  #saved: bigint | undefined
  #savedAt = 0

  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly deadlineMs: number,
    private readonly options: SubscriptionOptions,
  ) {
    this.#log = options.logger ?? consoleLogger
  }

  /**
   * Handles events until the signal is aborted: then the handler under way ends, and what was handled is saved, within
   * 5 s. Once.
   *
   * @throws what the handler threw; RdqError if the stream or a save was refused, and trying again cannot help.
   */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#hasRun) {
      throw new Error('a subscription is run once')
    }
    this.#hasRun = true
    try {
      while (!signal.aborted) {
        let waitMs: number
        try {
          // What could not be saved before: else the server would begin before it.
          await this.#save(signal)
          await this.#read(signal)
          waitMs = this.#backoff.nextMs()
        } catch (error) {
          if (!(error instanceof RdqError && error.retryable)) {
            throw error
          }
          const { stream, consumer } = this.options
          this.#log.info('connecting again', { stream, consumer, error: String(error) })
          waitMs = waitBefore(error, this.#backoff.nextMs())
        }
        await sleep(waitMs, signal)
      }
    } catch (error) {
      if (error instanceof HandlerFailed) {
        throw error.error
      }
      if (!signal.aborted || error !== signal.reason) {
        throw error
      }
    } finally {
      await this.#saveLast()
      this.transport.close()
    }
  }

  /** Reads by one stream to its end, or until the signal is aborted. */
  async #read(signal: AbortSignal): Promise<void> {
    const { stream, consumer, limit } = this.options
    const request = create(SubscribeRequestSchema, {
      ...{ stream, consumer },
      ...(limit === undefined ? {} : { limit }),
    })
    const silent = new AbortController()
    const messages = this.transport.serverStream(
      StreamService.method.subscribe,
      request,
      AbortSignal.any([signal, silent.signal]),
    )
    this.#savedAt = now()
    try {
      for (;;) {
        const message = await this.#next(messages, silent)
        if (message === undefined) {
          return
        }
        this.#backoff.reset()
        await this.#take(message, signal)
      }
    } finally {
      await messages.return()
    }
  }

  async #next(
    messages: AsyncGenerator<SubscribeResponse, void, undefined>,
    silent: AbortController,
  ): Promise<SubscribeResponse | undefined> {
    const timer = setTimeout(() => {
      silent.abort(errorOf({ code: Code.DEADLINE_EXCEEDED, message: 'the stream is silent' }))
    }, SILENCE_MAX_MS)
    try {
      const { value } = await messages.next()
      return value ?? undefined
    } finally {
      clearTimeout(timer)
    }
  }

  async #take(message: SubscribeResponse, signal: AbortSignal): Promise<void> {
    for (const event of message.events) {
      if (signal.aborted) {
        return
      }
      if (this.#handled !== undefined && event.offset <= this.#handled) {
        continue
      }
      try {
        await this.options.handler(event)
      } catch (error) {
        // eslint-disable-next-line @typescript-eslint/only-throw-error -- caught in `run`, which throws what is in it
        throw new HandlerFailed(error)
      }
      this.#handled = event.offset
      if (now() - this.#savedAt >= SAVE_MS) {
        await this.#save(signal)
      }
    }
    await this.#save(signal)
  }

  /** Saves what was handled. Given up when the signal is aborted: the last save is another. */
  async #save(signal: AbortSignal): Promise<void> {
    if (this.#handled !== undefined && this.#handled !== this.#saved) {
      await this.#saveOffset(this.#handled, { deadlineMs: this.deadlineMs, signal })
    }
  }

  async #saveOffset(
    offset: bigint,
    options: { deadlineMs: number; signal?: AbortSignal },
  ): Promise<void> {
    const { stream, consumer } = this.options
    const request = create(SaveOffsetRequestSchema, { stream, consumer, offset })
    await retrying(
      (tryMs) =>
        this.transport.unary(StreamService.method.saveOffset, request, tryMs, options.signal),
      {
        ...options,
        onTryTimeout: () => {
          this.transport.renew()
        },
      },
    )
    this.#saved = offset
    this.#savedAt = now()
  }

  async #saveLast(): Promise<void> {
    if (this.#handled === undefined || this.#handled === this.#saved) {
      return
    }
    try {
      await this.#saveOffset(this.#handled, { deadlineMs: LAST_SAVE_MS })
    } catch (error) {
      const { stream, consumer } = this.options
      this.#log.warn('what was handled last is not saved and comes again', {
        ...{ stream, consumer, error: String(error) },
      })
    }
  }
}
