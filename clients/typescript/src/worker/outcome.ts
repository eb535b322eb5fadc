/** How a handler's attempt can end, as a handler or an outcome mapper says it, and as the contract does. */

import { create, type MessageInitShape } from '@bufbuild/protobuf'
import { AttemptErrorSchema, AttemptOutcome } from '../gen/rdq/v1/task_pb.js'
import { type Resolution, ResolutionSchema } from '../gen/rdq/v1/task_service_pb.js'
import { toBytes } from '../task.js'
import { toDuration } from '../time.js'

/** What a failure says of itself beside its message. */
export interface FailureOptions {
  /** A stable name that the queue's classification matches, such as `http.503`. */
  type?: string
  /** For programs, of any format. */
  detail?: string
}

/** An error whose type is chosen, not taken from its class: `throw new TaskError('http.503', 'try later')`. */
export class TaskError extends Error {
  /** A stable name that the queue's classification matches. */
  readonly errorType: string
  /** For programs, of any format. */
  readonly detail: string | undefined

  constructor(
    errorType: string,
    message: string,
    options: ErrorOptions & { detail?: string } = {},
  ) {
    super(message, options)
    this.name = 'TaskError'
    this.errorType = errorType
    this.detail = options.detail
  }
}

/** What the wrappers have in common. */
abstract class Wrapper extends Error {
  readonly options: FailureOptions

  constructor(error: unknown, options: FailureOptions) {
    super(messageOf(error), typeof error === 'string' ? undefined : { cause: error })
    this.name = new.target.name
    this.options = options
  }
}

/** The task must not run again: it becomes a dead letter. Thrown, or answered by an outcome mapper. */
export class Permanent extends Wrapper {
  constructor(error: unknown, options: FailureOptions = {}) {
    super(error, options)
  }
}

/** The task may run again while it has attempts, whatever the queue's classification says of the error. */
export class Retryable extends Wrapper {
  constructor(error: unknown, options: FailureOptions = {}) {
    super(error, options)
  }
}

/** The attempt failed; the task is due again after so many milliseconds. */
export class RetryAfter extends Wrapper {
  constructor(
    readonly delayMs: number,
    error: unknown,
    options: FailureOptions = {},
  ) {
    toDuration(delayMs, 'delayMs')
    super(error, options)
  }
}

/** Not now: the task is due again after so many milliseconds, and no attempt is spent. */
export class Snooze extends Error {
  constructor(readonly delayMs: number) {
    toDuration(delayMs, 'delayMs')
    super(`not before ${String(delayMs)} ms have passed`)
    this.name = 'Snooze'
  }
}

/** The attempt succeeded. Only an outcome mapper needs it. */
export class Success {
  /** Kept with the task; at most 64 KiB. */
  readonly result: Uint8Array

  constructor(result: Uint8Array | string = '') {
    this.result = toBytes(result)
  }
}

/** How an attempt ends; any other error is a failure that the queue's classification judges. */
export type Outcome = Success | Permanent | Retryable | RetryAfter | Snooze | Error

/** How a handler ended. */
export type Ended = { ok: true; value: unknown } | { ok: false; error: unknown }

/** The outcome of what a handler returned or threw. */
export function outcomeOf(ended: Ended): Outcome {
  if (!ended.ok) {
    return ended.error instanceof Error ? ended.error : new NonError(ended.error)
  }
  const { value } = ended
  if (value === undefined || value === null) {
    return new Success()
  }
  if (typeof value === 'string' || value instanceof Uint8Array) {
    return new Success(value)
  }
  if (value instanceof Success || value instanceof Error) {
    return value
  }
  return new TypeError(`a handler returns bytes, text or nothing, not ${kindOf(value)}`)
}

/** Something was thrown that is no error. */
class NonError extends Error {
  readonly errorType: string

  constructor(thrown: unknown) {
    super(messageOf(thrown))
    this.errorType = kindOf(thrown)
  }
}

/** For messages and types: the class of an object, the kind of anything else. */
function kindOf(value: unknown): string {
  if (typeof value !== 'object' || value === null) {
    return typeof value
  }
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null ? 'object' : value.constructor.name
}

/** The claim that a resolution ends. */
export interface ClaimName {
  readonly id: string
  readonly token: Uint8Array
}

/** The message that says an outcome. */
export function toResolution(claim: ClaimName, outcome: Outcome): Resolution {
  const name = { id: claim.id, claimToken: claim.token }
  if (outcome instanceof Success) {
    return resolution({ case: 'complete', value: { ...name, result: outcome.result } })
  }
  if (outcome instanceof Snooze) {
    return toRelease(claim, outcome.delayMs)
  }
  const attempt = { error: toAttemptError(outcome) }
  if (outcome instanceof Permanent) {
    return resolution({ case: 'deadLetter', value: { ...name, attempt } })
  }
  if (outcome instanceof RetryAfter) {
    const delay = toDuration(outcome.delayMs, 'delayMs')
    return resolution({ case: 'reschedule', value: { ...name, attempt, delay } })
  }
  const judgement =
    outcome instanceof Retryable ? AttemptOutcome.RETRYABLE_FAILURE : AttemptOutcome.UNSPECIFIED
  return resolution({
    case: 'fail',
    value: { ...name, attempt: { ...attempt, outcome: judgement } },
  })
}

/** The message that gives a claim back, no attempt spent. */
export function toRelease(claim: ClaimName, delayMs?: number): Resolution {
  const name = { id: claim.id, claimToken: claim.token }
  const delay = delayMs === undefined ? {} : { delay: toDuration(delayMs, 'delayMs') }
  return resolution({ case: 'release', value: { ...name, ...delay } })
}

type Call = NonNullable<MessageInitShape<typeof ResolutionSchema>['call']>

function resolution(call: Call): Resolution {
  return create(ResolutionSchema, { call })
}

// A little more than the server keeps, so that it is the one who cuts and says so.
const TYPE_CHARS_MAX = 512
const MESSAGE_CHARS_MAX = 8 * 1024
const TEXT_CHARS_MAX = 80 * 1024

/** What is recorded of a failure. */
export function toAttemptError(error: Error): MessageInitShape<typeof AttemptErrorSchema> {
  const options = error instanceof Wrapper ? error.options : {}
  const told = toldBy(error)
  const { detail } = told as { detail?: unknown }
  const namedDetail = typeof detail === 'string' ? detail : ''
  return {
    type: typeOf(error),
    message: told.message.slice(0, MESSAGE_CHARS_MAX),
    detail: (options.detail ?? namedDetail).slice(0, TEXT_CHARS_MAX),
    stack: stackOf(told).slice(0, TEXT_CHARS_MAX),
  }
}

/** The type of the failure that an outcome is; undefined if the attempt did not fail, or is only put off. */
export function failureTypeOf(outcome: Outcome): string | undefined {
  const isFailure = !(
    outcome instanceof Success ||
    outcome instanceof Snooze ||
    outcome instanceof RetryAfter
  )
  return isFailure ? typeOf(outcome) : undefined
}

/** A wrapper speaks for what it wraps. */
function toldBy(error: Error): Error {
  return error instanceof Wrapper && error.cause instanceof Error ? error.cause : error
}

function typeOf(error: Error): string {
  const chosen = error instanceof Wrapper ? error.options.type : undefined
  const told = toldBy(error)
  const { errorType } = told as { errorType?: unknown }
  const named = typeof errorType === 'string' ? errorType : nameOf(told)
  return (chosen ?? named).slice(0, TYPE_CHARS_MAX)
}

/** The name that an error gives itself, else that of its class. */
function nameOf(error: Error): string {
  if (error instanceof Wrapper || error instanceof NonError) {
    return 'Error'
  }
  const className = error.constructor.name
  return error.name === 'Error' && className !== '' ? className : error.name
}

function stackOf(error: Error): string {
  const stacks: string[] = []
  for (let next: unknown = error; next instanceof Error && stacks.length < 10; next = next.cause) {
    stacks.push(next.stack ?? String(next))
  }
  return stacks.join('\nCaused by: ')
}

function messageOf(error: unknown): string {
  if (error instanceof Error) {
    return error.message
  }
  try {
    return String(error)
  } catch {
    return kindOf(error)
  }
}
