/** Which handler runs a task. */

import { HandlerVersionMismatch } from '../gen/rdq/v1/task_service_pb.js'
import type { Claim } from './claim.js'

/** What a handler returns is kept as the task's result: bytes, or text as UTF-8; at most 64 KiB. */
// eslint-disable-next-line @typescript-eslint/no-invalid-void-type -- a handler that returns nothing is the common one
export type HandlerResult = Uint8Array | string | void

/**
 * Runs a task. What it returns completes the task, what it throws fails the attempt. The signal is aborted, with a
 * `HandlerStopped` as its reason, when the work is to be dropped: hand it on to what the handler awaits.
 */
export type Handler = (claim: Claim, signal: AbortSignal) => Promise<HandlerResult> | HandlerResult

/** What becomes of a claim. */
export type Route =
  | { case: 'run'; handler: Handler }
  | { case: 'deadLetter'; errorType: 'rdq.Unroutable' | 'rdq.VersionMismatch'; message: string }

interface Versions {
  unversioned: Handler | undefined
  byVersion: Map<string, Handler>
  /** Of those registered with a version. */
  last: Handler | undefined
}

/** The handlers of a worker. */
export class Routing {
  readonly #byRef = new Map<string, Versions>()

  /** @throws TypeError if there is one already. */
  add(handlerRef: string, version: string | undefined, handler: Handler): void {
    const versions = this.#byRef.get(handlerRef) ?? {
      unversioned: undefined,
      byVersion: new Map<string, Handler>(),
      last: undefined,
    }
    const isTaken =
      version === undefined ? versions.unversioned !== undefined : versions.byVersion.has(version)
    if (isTaken) {
      const suffix = version === undefined ? '' : `, version ${JSON.stringify(version)}`
      throw new TypeError(`${JSON.stringify(handlerRef)}${suffix} has a handler already`)
    }
    this.#byRef.set(handlerRef, versions)
    if (version === undefined) {
      versions.unversioned = handler
    } else {
      versions.byVersion.set(version, handler)
      versions.last = handler
    }
  }

  route(handlerRef: string, version: string | undefined, mismatch: HandlerVersionMismatch): Route {
    const versions = this.#byRef.get(handlerRef)
    const atHand = versions?.unversioned ?? versions?.last
    if (versions === undefined || atHand === undefined) {
      const message = `no handler for ${JSON.stringify(handlerRef)}`
      return { case: 'deadLetter', errorType: 'rdq.Unroutable', message }
    }
    if (version === undefined) {
      return { case: 'run', handler: atHand }
    }
    const exact = versions.byVersion.get(version)
    if (exact !== undefined) {
      return { case: 'run', handler: exact }
    }
    if (mismatch === HandlerVersionMismatch.DEAD_LETTER) {
      const message = `no version ${JSON.stringify(version)} of ${JSON.stringify(handlerRef)}`
      return { case: 'deadLetter', errorType: 'rdq.VersionMismatch', message }
    }
    return { case: 'run', handler: atHand }
  }
}
