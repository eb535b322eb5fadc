/** The parts that need no server: they decide, and know no clock and no connection. */

import assert from 'node:assert/strict'
import test from 'node:test'
import { create, toBinary } from '@bufbuild/protobuf'
import { anyPack } from '@bufbuild/protobuf/wkt'
import { Metadata } from '@grpc/grpc-js'
import { Backoff } from '../src/backoff.js'
import { cut } from '../src/batches.js'
import { Code, errorOf, errorOfItem, errorOfStatus, isRetryable } from '../src/errors.js'
import { ErrorInfoSchema, RetryInfoSchema, StatusSchema } from '../src/gen/google/rpc/status_pb.js'
import { ulid } from '../src/ids.js'
import * as client from '../src/index.js'
import {
  ClaimedTaskSchema,
  ErrorReason,
  HandlerVersionMismatch,
  ItemErrorSchema,
  TaskSchema,
} from '../src/proto.js'
import { retrying, waitBefore } from '../src/retry.js'
import { parseTraceparent } from '../src/telemetry.js'
import { toDate, toDuration, toMs, toTimestamp } from '../src/time.js'
import { parseAddress } from '../src/transport.js'
import { HeldClaim } from '../src/worker/held.js'
import { outcomeOf, toAttemptError } from '../src/worker/outcome.js'
import { type Route, Routing } from '../src/worker/routing.js'

void test('backoff doubles up to its bound, and starts anew after a reset', () => {
  const backoff = new Backoff(100, 1_000, () => 1)
  const waits = Array.from({ length: 6 }, () => backoff.nextMs())
  assert.deepEqual(waits, [100, 200, 400, 800, 1_000, 1_000])
  for (let failures = 0; failures < 2_000; failures += 1) {
    assert.equal(backoff.nextMs(), 1_000)
  }
  backoff.reset()
  assert.equal(backoff.nextMs(), 100)
  assert.equal(new Backoff(100, 1_000, () => 0).nextMs(), 0) // full jitter
})

void test('batches are cut by number and by bytes, in order', () => {
  const bounds = { itemsMax: 3, bytesMax: 100 }
  const sizes = (items: number[]) => [...cut(items, (item) => item, bounds)]
  assert.deepEqual(sizes([]), [])
  assert.deepEqual(sizes([1, 2, 3, 4]), [[1, 2, 3], [4]])
  assert.deepEqual(sizes([44, 44, 1]), [[44, 44], [1]]) // with 6 bytes of frame each: 100
  assert.deepEqual(sizes([45, 44]), [[45], [44]])
  assert.deepEqual(sizes([1, 500, 1]), [[1], [500], [1]]) // too large, alone
})

void test('every reason of the contract has a class of its own', () => {
  const classes = new Set<unknown>()
  const reasons = Object.keys(ErrorReason).filter((name) => !/^\d|UNSPECIFIED/.test(name))
  for (const reason of reasons) {
    const error = errorOf({ code: Code.UNKNOWN, message: 'm', reason })
    const words = reason.toLowerCase().split('_')
    const name = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('')
    assert.equal(error.name, `${name}Error`)
    assert.equal(error.constructor, (client as Record<string, unknown>)[`${name}Error`], name)
    assert.ok(error instanceof client.RdqError)
    classes.add(error.constructor)
  }
  assert.equal(classes.size, reasons.length)
})

void test('a status without details, or with strange ones, is the base type', () => {
  const metadata = new Metadata()
  metadata.set('grpc-status-details-bin', Buffer.from([255, 255, 255]))
  const error = errorOfStatus({ code: Code.NOT_FOUND, details: 'no', metadata })
  assert.equal(error.constructor, client.RdqError)
  assert.equal(error.reason, undefined)
  for (const reason of ['toString', 'UNSPECIFIED', 'NEWER']) {
    assert.equal(errorOf({ code: Code.OK, message: '', reason }).constructor, client.RdqError)
  }
})

void test('a status is read with its details', () => {
  const details = [
    anyPack(ErrorInfoSchema, create(ErrorInfoSchema, { domain: 'other', reason: 'NOT_FOUND' })),
    anyPack(
      ErrorInfoSchema,
      create(ErrorInfoSchema, { domain: 'rdq', reason: 'OVERLOADED', metadata: { a: 'b' } }),
    ),
    anyPack(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: toDuration(1_500, 'delay') })),
  ]
  const metadata = new Metadata()
  const bytes = toBinary(StatusSchema, create(StatusSchema, { details }))
  metadata.set('grpc-status-details-bin', Buffer.from(bytes))
  const error = errorOfStatus({ code: Code.RESOURCE_EXHAUSTED, details: 'slowly', metadata })
  assert.ok(error instanceof client.OverloadedError)
  assert.deepEqual(error.metadata, { a: 'b' })
  assert.equal(error.retryAfterMs, 1_500)
  assert.equal(error.retryable, true)
  assert.equal(waitBefore(error, 100), 1_500)
  assert.equal(waitBefore(error, 2_000), 2_000)
})

void test('an item of a batch is refused with the same types', () => {
  const item = (reason: number, code: number) =>
    errorOfItem(create(ItemErrorSchema, { code, reason, metadata: { task_id: 't' } }))
  assert.ok(
    item(ErrorReason.STALE_CLAIM, Code.FAILED_PRECONDITION) instanceof client.StaleClaimError,
  )
  const unknown = item(9_999, Code.NOT_FOUND)
  assert.equal(unknown.constructor, client.RdqError)
  assert.equal(unknown.code, Code.NOT_FOUND)
  assert.deepEqual(unknown.metadata, { task_id: 't' })
})

void test('what is retried is what the table says', () => {
  assert.equal(isRetryable(Code.UNAVAILABLE, undefined), true)
  assert.equal(isRetryable(Code.UNAVAILABLE, 'CLOSED'), true)
  assert.equal(isRetryable(Code.DEADLINE_EXCEEDED, undefined), true)
  assert.equal(isRetryable(Code.DEADLINE_EXCEEDED, 'DEADLINE_EXCEEDED'), true)
  assert.equal(isRetryable(Code.ABORTED, 'CONTENTION'), true)
  assert.equal(isRetryable(Code.RESOURCE_EXHAUSTED, 'OVERLOADED'), true)
  assert.equal(isRetryable(Code.RESOURCE_EXHAUSTED, 'STORAGE_FULL'), false)
  assert.equal(isRetryable(Code.RESOURCE_EXHAUSTED, 'MESSAGE_TOO_LARGE'), false)
  assert.equal(isRetryable(Code.RESOURCE_EXHAUSTED, undefined), false)
  assert.equal(isRetryable(Code.INTERNAL, 'INTERNAL'), false)
  assert.equal(isRetryable(Code.NOT_FOUND, 'NOT_FOUND'), false)
})

void test('a call is repeated until it succeeds, or its error says that it cannot', async () => {
  const unavailable = (outcomeUnknown: boolean) =>
    errorOf({ code: Code.UNAVAILABLE, message: 'gone', outcomeUnknown })
  const late = errorOf({ code: Code.DEADLINE_EXCEEDED, message: 'late', outcomeUnknown: true })
  const answers: unknown[] = [unavailable(true), late, unavailable(false), 'answer']
  let timeouts = 0
  const attempt = () => {
    const answer = answers.shift()
    return answer instanceof Error ? Promise.reject(answer) : Promise.resolve(answer)
  }
  const onTryTimeout = () => {
    timeouts += 1
  }
  assert.equal(await retrying(attempt, { onTryTimeout }), 'answer')
  assert.equal(timeouts, 1)

  answers.push(
    unavailable(true),
    errorOf({ code: Code.NOT_FOUND, message: '', reason: 'NOT_FOUND' }),
  )
  await assert.rejects(retrying(attempt, {}), client.NotFoundError)
  assert.equal(answers.length, 0)

  // An earlier try may have done it, whatever the last one says.
  answers.push(unavailable(true), unavailable(false))
  let repetitions = 0
  const mayRepeat = () => (repetitions += 1) < 2
  const isUnknown = (error: unknown) => error instanceof client.RdqError && error.outcomeUnknown
  await assert.rejects(retrying(attempt, { mayRepeat }), isUnknown)

  answers.push(unavailable(false))
  await assert.rejects(retrying(attempt, { deadlineMs: 0 }), { message: 'gone' })
  const given = AbortSignal.abort(new Error('given up'))
  await assert.rejects(retrying(attempt, { signal: given }), { message: 'given up' })
})

void test('milliseconds and dates survive the way through the contract', () => {
  for (const ms of [0, 1, 999, 1_000, 1_500.25, -1, -1_500, 0.1, 43_200_000, 1e15]) {
    assert.equal(toMs(toDuration(ms, 'ms')), ms)
  }
  assert.deepEqual(
    [toDuration(-1_500, 'ms').seconds, toDuration(-1_500, 'ms').nanos],
    [-1n, -500_000_000],
  )
  assert.equal(toDuration(999.9999999, 'ms').seconds, 1n) // rounded up to a second
  assert.throws(() => toDuration(Number.NaN, 'delayMs'), /delayMs/)
  assert.throws(() => toDuration(Infinity, 'delayMs'), RangeError)
  for (const text of [
    '2026-01-02T03:04:05.678Z',
    '1969-12-31T23:59:59.001Z',
    '0001-01-01T00:00:00Z',
  ]) {
    const date = new Date(text)
    const timestamp = toTimestamp(date, 'at')
    assert.ok(timestamp.nanos >= 0)
    assert.deepEqual(toDate(timestamp), date)
  }
  assert.throws(() => toTimestamp(new Date('nonsense'), 'dueAt'), /dueAt/)
})

void test('an address is a host and a port, or a URL of them', () => {
  assert.deepEqual(parseAddress('127.0.0.1:7420'), { target: '127.0.0.1:7420', isTls: false })
  assert.deepEqual(parseAddress('http://rdq:80/'), { target: 'rdq:80', isTls: false })
  assert.deepEqual(parseAddress('https://rdq.example:443'), {
    target: 'rdq.example:443',
    isTls: true,
  })
  assert.deepEqual(parseAddress('[::1]:7420'), { target: '[::1]:7420', isTls: false })
  for (const wrong of [
    '',
    'rdq',
    'rdq:',
    ':7420',
    'ftp://rdq:1',
    'http://rdq',
    'http://a:b@rdq:1',
  ]) {
    assert.throws(() => parseAddress(wrong), TypeError, wrong)
  }
})

void test('ids are ULIDs, ordered by their time', () => {
  const ids = [ulid(1), ulid(32), ulid(Date.UTC(2026, 0)), ulid(2 ** 48 - 1)]
  assert.deepEqual([...ids].sort(), ids)
  assert.ok(ids.every((id) => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(id)))
  assert.equal(new Set(Array.from({ length: 1_000 }, () => ulid(1))).size, 1_000)
})

void test('a traceparent is read, and a broken one is not', () => {
  const text = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  const parsed = {
    traceId: '0af7651916cd43dd8448eb211c80319c',
    spanId: 'b7ad6b7169203331',
    traceFlags: 1,
  }
  assert.deepEqual(parseTraceparent(text), parsed)
  assert.deepEqual(parseTraceparent(`01${text.slice(2)}-more`), parsed)
  for (const wrong of [undefined, '', `ff${text.slice(2)}`, text.slice(1), text.toUpperCase()]) {
    assert.equal(parseTraceparent(wrong), undefined)
  }
})

void test('handlers are found by reference and version', () => {
  const { DEAD_LETTER, RUN_LATEST } = HandlerVersionMismatch
  const [plain, one, two] = [() => 'plain', () => 'one', () => 'two']
  const routing = new Routing()
  routing.add('both', undefined, plain)
  routing.add('both', '1', one)
  routing.add('versions', '1', one)
  routing.add('versions', '2', two)
  const handlerOf = (route: Route) => (route.case === 'run' ? route.handler : route.errorType)
  assert.equal(handlerOf(routing.route('both', undefined, DEAD_LETTER)), plain)
  assert.equal(handlerOf(routing.route('both', '1', DEAD_LETTER)), one)
  assert.equal(handlerOf(routing.route('both', '2', DEAD_LETTER)), 'rdq.VersionMismatch')
  assert.equal(handlerOf(routing.route('both', '2', RUN_LATEST)), plain)
  assert.equal(handlerOf(routing.route('both', '2', 99 as HandlerVersionMismatch)), plain)
  assert.equal(handlerOf(routing.route('versions', undefined, DEAD_LETTER)), two)
  assert.equal(handlerOf(routing.route('versions', '3', RUN_LATEST)), two)
  assert.equal(handlerOf(routing.route('none', '1', RUN_LATEST)), 'rdq.Unroutable')
  assert.throws(() => {
    routing.add('both', '1', two)
  }, TypeError)
})

void test('an error is recorded under its own name', () => {
  class Named extends Error {}
  const typeOf = (thrown: unknown) =>
    toAttemptError(outcomeOf({ ok: false, error: thrown }) as Error).type
  assert.equal(typeOf(new Named('n')), 'Named')
  assert.equal(typeOf(Object.assign(new Error('n'), { name: 'Renamed' })), 'Renamed')
  assert.equal(typeOf(new TypeError('n')), 'TypeError')
  assert.equal(typeOf(new client.TaskError('http.503', 'n')), 'http.503')
  assert.equal(typeOf(new client.Permanent(new Named('n'))), 'Named')
  assert.equal(typeOf(new client.Permanent(new Named('n'), { type: 'chosen' })), 'chosen')
  assert.equal(typeOf(new client.Retryable('text')), 'Error')
  assert.equal(typeOf('text'), 'string')
  assert.equal(typeOf(undefined), 'undefined')
  assert.equal(typeOf(Object.create(null)), 'object')
  const cause = new Named('the cause')
  const { stack, message } = toAttemptError(new Error('m', { cause }))
  assert.equal(message, 'm')
  assert.match(String(stack), /Error: m\n[^]*Caused by: .*the cause/)
  assert.equal(String(toAttemptError(new Error('x'.repeat(1e6))).message).length, 8 * 1024)
})

void test('what a handler returns is text, bytes or nothing', () => {
  const resultOf = (value: unknown) => outcomeOf({ ok: true, value })
  assert.deepEqual(resultOf('ñ'), new client.Success(Uint8Array.of(0xc3, 0xb1)))
  assert.deepEqual(resultOf(undefined), new client.Success())
  assert.ok(resultOf(new client.Snooze(1)) instanceof client.Snooze)
  assert.ok(resultOf({ not: 'serialised' }) instanceof TypeError)
  assert.throws(() => new client.Snooze(Number.NaN), RangeError)
})

void test('a claim began before it arrived', () => {
  const claimedAt = new Date('2026-01-02T03:04:05Z')
  const task = create(TaskSchema, {
    claimedAt: toTimestamp(claimedAt, 'claimedAt'),
    leaseExpiresAt: toTimestamp(new Date(claimedAt.getTime() + 10_000), 'leaseExpiresAt'),
  })
  const claimed = create(ClaimedTaskSchema, {
    task,
    leaseRemaining: toDuration(7_000, 'leaseRemaining'),
  })
  const claim = new HeldClaim(claimed, task, 50_000)
  assert.equal(claim.leaseMs, 10_000)
  assert.equal(claim.leaseEndsAt, 57_000)
  assert.equal(claim.claimedAt, 47_000)
})
