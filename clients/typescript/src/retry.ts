/** Which calls are repeated, when, and for how long. */

import { Backoff } from './backoff.js'
import { Code, RdqError } from './errors.js'
import { sleep } from './sleep.js'
import { now } from './time.js'

/** The wait after the first failure is below this, and its bound doubles with each. */
export const BACKOFF_FIRST_MS = 100
export const BACKOFF_MAX_MS = 5_000
/** No try waits longer for its answer. */
export const TRY_MAX_MS = 10_000
/** Reasons of refusals of a whole request that are about what is in it. */
export const ABOUT_REQUEST: ReadonlySet<string> = new Set([
  'INVALID_ARGUMENT',
  'MESSAGE_TOO_LARGE',
  'PAYLOAD_TOO_LARGE',
])
/** What a call has in total, if nobody says otherwise. */
export const DEADLINE_MS = 30_000

/** The bounds of one call. */
export interface CallOptions {
  /** How long the call may take in total, repeated tries included, in milliseconds. */
  deadlineMs?: number
  /** Gives the call up; it rejects with the signal's reason. */
  signal?: AbortSignal
}

/** What the repeating needs to know. */
export interface RetryOptions extends CallOptions {
  /** No try waits longer for its answer; in milliseconds. */
  tryMaxMs?: number
  /** Called when a try was not answered in its time: the connection may be dead. */
  onTryTimeout?: () => void
  /** Asked before a repetition; false ends it. */
  mayRepeat?: () => boolean
}

/**
 * Makes a call, and makes it again while that may help and the deadline allows it.
 *
 * @throws the error of the last try.
 */
export async function retrying<T>(
  attempt: (tryMs: number) => Promise<T>,
  options: RetryOptions,
): Promise<T> {
  const end = now() + (options.deadlineMs ?? DEADLINE_MS)
  const tryMaxMs = options.tryMaxMs ?? TRY_MAX_MS
  const backoff = new Backoff(BACKOFF_FIRST_MS, BACKOFF_MAX_MS)
  let mayHaveHappened = false
  for (;;) {
    options.signal?.throwIfAborted()
    try {
      // Also with nothing left there is one try.
      return await attempt(Math.max(1, Math.min(tryMaxMs, end - now())))
    } catch (error) {
      if (!(error instanceof RdqError)) {
        throw error
      }
      mayHaveHappened ||= error.outcomeUnknown
      if (error.code === Code.DEADLINE_EXCEEDED) {
        options.onTryTimeout?.()
      }
      const waitMs = waitBefore(error, backoff.nextMs())
      const repeats =
        error.retryable &&
        now() + waitMs < end &&
        (options.mayRepeat === undefined || options.mayRepeat())
      if (!repeats) {
        // An earlier try may have done what the last one was refused.
        error.outcomeUnknown = error.retryable ? mayHaveHappened : error.outcomeUnknown
        throw error
      }
      await sleep(waitMs, options.signal)
    }
  }
}

/** How long to wait before a repetition, in milliseconds: never less than the server asks for. */
export function waitBefore(error: RdqError, backoffMs: number): number {
  return Math.max(backoffMs, error.retryAfterMs ?? 0)
}
