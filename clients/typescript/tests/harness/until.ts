/** Waiting for what is expected. */

import { setTimeout as pause } from 'node:timers/promises'
import { RdqError } from '../../src/index.js'

const GIVE_UP_MS = 120_000
const BETWEEN_MS = 20

/** Asks until there is an answer that is not undefined. */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined> | T | undefined,
): Promise<T> {
  let waitedMs = 0
  for (let askedAt = performance.now(); ; askedAt = performance.now()) {
    const answer = await ask()
    if (answer !== undefined) {
      return answer
    }
    if (waitedMs > GIVE_UP_MS) {
      throw new Error(`waited in vain: ${what}`)
    }
    await pause(BETWEEN_MS)
    // A machine that stood still has not waited.
    waitedMs += Math.min(performance.now() - askedAt, 1_000)
  }
}

/** A promise that is settled from outside. */
export class Gate<T = void> {
  readonly opened: Promise<T>
  #open!: (value: T) => void

  constructor() {
    this.opened = new Promise((resolve) => {
      this.#open = resolve
    })
  }

  open(value: T): void {
    this.#open(value)
  }
}

/** Resolves when the signal is aborted, with its reason. */
export function aborted(signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve(signal.reason)
    }
    signal.addEventListener('abort', () => {
      resolve(signal.reason)
    })
  })
}

/** The error that a promise rejects with. */
export async function refusal(promise: Promise<unknown>): Promise<RdqError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (!(error instanceof RdqError)) {
    throw new Error(`an RdqError was expected, not ${String(error)}`)
  }
  return error
}
