/** Durations in milliseconds and instants as `Date`, to the contract's messages and back. */

import { create } from '@bufbuild/protobuf'
import {
  type Duration,
  DurationSchema,
  type Timestamp,
  TimestampSchema,
  timestampDate,
  timestampFromMs,
} from '@bufbuild/protobuf/wkt'

/** The longest delay that `setTimeout` keeps: beyond it, it fires at once. */
export const TIMER_MAX_MS = 2_147_483_647

/** @throws RangeError if it is not a finite number. */
export function toDuration(ms: number, name: string): Duration {
  if (!Number.isFinite(ms)) {
    throw new RangeError(`${name} must be a finite number of milliseconds, not ${String(ms)}`)
  }
  const seconds = Math.trunc(ms / 1000)
  const nanos = Math.round((ms - seconds * 1000) * 1e6)
  // Rounding may have made it a whole second.
  const carry = Math.trunc(nanos / 1e9)
  return create(DurationSchema, { seconds: BigInt(seconds + carry), nanos: nanos - carry * 1e9 })
}

export function toMs(duration: Duration): number {
  return Number(duration.seconds) * 1000 + duration.nanos / 1e6
}

/** @throws RangeError if it is no valid date. */
export function toTimestamp(date: Date, name: string): Timestamp {
  const ms = date.getTime()
  if (Number.isNaN(ms)) {
    throw new RangeError(`${name} is an invalid date`)
  }
  return ms >= 0 ? timestampFromMs(ms) : timestampBefore1970(ms)
}

function timestampBefore1970(ms: number): Timestamp {
  const seconds = Math.floor(ms / 1000)
  return create(TimestampSchema, { seconds: BigInt(seconds), nanos: (ms - seconds * 1000) * 1e6 })
}

export function toDate(timestamp: Timestamp): Date {
  return timestampDate(timestamp)
}

/** Milliseconds by a clock that only goes forward. */
export function now(): number {
  return performance.now()
}
