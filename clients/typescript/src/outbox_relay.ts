/** Outbox relays: messages of an outbox, carried elsewhere, each at least once. */

import { Backoff } from './backoff.js'
import type { RdqClient } from './client.js'
import { OutboxClaimMismatchError, OutboxMissingError, RdqError } from './errors.js'
import { type OutboxMessage, OutboxService } from './gen/rdq/v1/outbox_service_pb.js'
import { waitBefore } from './retry.js'
import { sleep } from './sleep.js'
import { toDuration } from './time.js'
import { consoleLogger, type Logger } from './worker/log.js'

const BACKOFF_FIRST_MS = 100
const IDLE_MAX_MS = 2_000
const BACKOFF_MAX_MS = 10_000
/** The server keeps the beginning. */
const ERROR_CHARS = 8_192

/** Which messages a relay carries. */
export interface OutboxRelayOptions {
  /** The outbox; any if unset. */
  outbox?: string
  /** How long a message is claimed, in milliseconds; the server's 60 s if unset. It has to be longer than a delivery. */
  leaseMs?: number
  logger?: Logger
}

/** Carries a message elsewhere. What it throws is a failure of that delivery. */
export type Deliver = (message: OutboxMessage) => Promise<void> | void

/**
 * Carries messages of an outbox elsewhere, each at least once: no claim is extended, so a delivery that takes longer
 * than the lease may be made twice. A message whose delivery fails comes again after a delay that begins at 5 s and
 * doubles, and is a dead letter after the fifth failure.
 */
export class OutboxRelay {
  constructor(
    private readonly client: RdqClient,
    private readonly options: OutboxRelayOptions,
  ) {}

  /**
   * Claims one message, delivers it, and says so. A promise cannot be broken off, so neither is a delivery.
   *
   * @returns whether there was a message, delivered or not.
   */
  async runOnce(workerId: string, deliver: Deliver): Promise<boolean> {
    const { outbox, leaseMs } = this.options
    const { messages } = await this.client.call(OutboxService.method.claimBatch, {
      ...{ workerId, limit: 1 },
      ...(outbox === undefined ? {} : { outbox }),
      ...(leaseMs === undefined ? {} : { lease: toDuration(leaseMs, 'leaseMs') }),
    })
    for (const message of messages) {
      await this.#carry(message, deliver)
    }
    return messages.length > 0
  }

  /**
   * Does so until the signal is aborted, and the delivery under way is answered: at once after a message, after growing
   * delays of up to 2 s when there is none, and of up to 10 s when the server cannot be reached.
   *
   * @throws RdqError if a call was refused, and trying again cannot help.
   */
  async run(workerId: string, deliver: Deliver, signal: AbortSignal): Promise<void> {
    const idle = new Backoff(BACKOFF_FIRST_MS, IDLE_MAX_MS)
    const broken = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
    while (!signal.aborted) {
      let waitMs: number
      try {
        if (await this.runOnce(workerId, deliver)) {
          idle.reset()
          broken.reset()
          continue
        }
        broken.reset()
        waitMs = idle.nextMs()
      } catch (error) {
        if (!(error instanceof RdqError && error.retryable)) {
          throw error
        }
        waitMs = waitBefore(error, broken.nextMs())
      }
      await sleep(waitMs, signal)
    }
  }

  async #carry(message: OutboxMessage, deliver: Deliver): Promise<void> {
    const { id, workerId, generation } = message
    let failure: { error: unknown } | undefined
    try {
      await deliver(message)
    } catch (error) {
      failure = { error }
    }
    try {
      if (failure === undefined) {
        await this.client.call(OutboxService.method.markProjected, { id, workerId, generation })
      } else {
        const error = described(failure.error)
        await this.client.call(OutboxService.method.fail, { id, workerId, generation, error })
      }
    } catch (error) {
      if (!(error instanceof OutboxClaimMismatchError || error instanceof OutboxMissingError)) {
        throw error
      }
      const log = this.options.logger ?? consoleLogger
      log.warn('the claim of a message ended', { id, error: String(error) })
    }
  }
}

function described(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error)
  // Half of a surrogate pair cannot be sent.
  return Buffer.from(text.slice(0, ERROR_CHARS)).toString()
}
