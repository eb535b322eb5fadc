/** Ids that nobody has to hand out. */

import { randomBytes } from 'node:crypto'
import { hostname } from 'node:os'

const ALPHABET = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'

/** A ULID: 48 bits of the time, so that ids sort by it, and 80 random ones. */
export function ulid(timeMs: number = Date.now()): string {
  let time = ''
  for (let rest = timeMs, index = 0; index < 10; index += 1) {
    time = ALPHABET.charAt(rest % 32) + time
    rest = Math.floor(rest / 32)
  }
  return time + randomText(16)
}

/** Random characters of Crockford's base 32. */
export function randomText(length: number): string {
  let text = ''
  for (const byte of randomBytes(length)) {
    text += ALPHABET.charAt(byte % 32)
  }
  return text
}

/** The host, the process and random letters. */
export function workerId(): string {
  return `${hostname()}-${String(process.pid)}-${randomText(6)}`
}
