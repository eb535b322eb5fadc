/** Scenarios of how an attempt ends. */

import assert from 'node:assert/strict'
import {
  HandlerStopped,
  Permanent,
  Retryable,
  RetryAfter,
  Snooze,
  Success,
  TaskError,
} from '../src/index.js'
import { QUEUE, quiet, scenario } from './harness/scene.js'
import { aborted, Gate } from './harness/until.js'

const EVERY_BYTE = Uint8Array.from({ length: 256 }, (_, byte) => byte)
const RESULT_BYTES_MAX = 64 * 1024

scenario('retry_then_success', async (scene) => {
  class CardDeclined extends Error {}
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h', initialBackoffMs: 1 })
  const numbers: number[] = []
  scene.work({
    handlers: {
      h: (claim) => {
        numbers.push(claim.attemptNo)
        switch (claim.attemptNo) {
          case 1:
            throw new CardDeclined('no funds')
          case 2:
            throw new TaskError('http.503', 'try later', { detail: '{"retry": true}' })
          default:
            return 'paid'
        }
      },
    },
  })

  const task = await scene.finished(id)

  assert.equal(task.status, 'SUCCEEDED')
  assert.deepEqual(numbers, [1, 2, 3])
  const [first, second, third] = task.attempts
  assert.equal(first?.outcome, 'RETRYABLE_FAILURE')
  assert.equal(first.error?.type, 'CardDeclined')
  assert.equal(first.error.message, 'no funds')
  assert.match(first.error.stack, /no funds\n +at .*ending\.test/)
  assert.equal(second?.error?.type, 'http.503')
  assert.equal(second.error.message, 'try later')
  assert.equal(second.error.detail, '{"retry": true}')
  assert.equal(third?.outcome, 'SUCCESS')
  assert.equal(third.error, undefined)
})

scenario('retry_after_and_snooze', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const numbers: number[] = []
  scene.work({
    handlers: {
      h: (claim) => {
        numbers.push(claim.attemptNo)
        switch (numbers.length) {
          case 1:
            throw new Snooze(5)
          case 2:
            throw new RetryAfter(5, new Error('busy'), { type: 'http.429' })
          default:
            return
        }
      },
    },
  })

  const task = await scene.finished(id)

  assert.equal(task.status, 'SUCCEEDED')
  assert.deepEqual(numbers, [1, 1, 2])
  assert.equal(task.attempts.length, 2)
  assert.equal(task.attempts[0]?.error?.type, 'http.429')
  assert.equal(task.attempts[0].error.message, 'busy')
})

scenario('permanent_failure', async (scene) => {
  await scene.client.putQueue(QUEUE, { classification: { permanent: ['*'] } })
  const ids = await scene.client.enqueueMany([
    { queue: QUEUE, handlerRef: 'permanent' },
    { queue: QUEUE, handlerRef: 'retryable', initialBackoffMs: 1, maxAttempts: 2 },
  ])
  scene.work({
    handlers: {
      permanent: () => {
        throw new Permanent(new RangeError('no such address'))
      },
      retryable: () => {
        throw new Retryable(new RangeError('whatever the queue says'))
      },
    },
  })

  const task = await scene.finished(ids[0]?.id ?? '')
  assert.equal(task.status, 'DEAD')
  assert.equal(task.attempts.length, 1)
  assert.equal(task.attempts[0]?.outcome, 'PERMANENT_FAILURE')
  assert.equal(task.attempts[0].error?.type, 'RangeError')
  assert.equal(task.attempts[0].error.message, 'no such address')
  assert.match(task.attempts[0].error.stack, /ending\.test/)
  assert.equal((await scene.finished(ids[1]?.id ?? '')).attempts.length, 2)
})

scenario('outcome_mapper', async (scene) => {
  const [bad, saved, plain] = await scene.client.enqueueMany([
    { queue: QUEUE, handlerRef: 'returns', payload: 'rejected' },
    { queue: QUEUE, handlerRef: 'throws' },
    { queue: QUEUE, handlerRef: 'returns', payload: 'fine' },
  ])
  scene.work({
    handlers: {
      returns: (claim) => claim.text(),
      throws: () => {
        throw new Error('already done')
      },
    },
    outcomeMapper: (ended) => {
      if (ended.ok) {
        return ended.value === 'rejected'
          ? new Permanent('rejected', { type: 'mapped' })
          : undefined
      }
      return new Success('as good as done')
    },
  })

  const dead = await scene.finished(bad?.id ?? '')
  assert.equal(dead.status, 'DEAD')
  assert.equal(dead.attempts[0]?.error?.type, 'mapped')
  const success = await scene.finished(saved?.id ?? '')
  assert.equal(success.status, 'SUCCEEDED')
  assert.equal(Buffer.from(success.result).toString(), 'as good as done')
  assert.equal(Buffer.from((await scene.finished(plain?.id ?? '')).result).toString(), 'fine')
})

scenario('unroutable', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'nobody' })
  scene.work({ handlers: { somebody: () => undefined } })

  const task = await scene.finished(id)

  assert.equal(task.status, 'DEAD')
  assert.equal(task.attempts.length, 1)
  assert.equal(task.attempts[0]?.error?.type, 'rdq.Unroutable')
})

scenario('version_mismatch', async (scene) => {
  await scene.client.putQueue('strict', { handler: { versionMismatch: 'dead_letter' } })
  await scene.client.putQueue('lax', { handler: { versionMismatch: 'run_latest' } })
  const task = (queue: string, handlerRef: string, handlerVersion: string) => ({
    ...{ queue, handlerRef, handlerVersion },
    id: `${queue} ${handlerRef} ${handlerVersion}`,
  })
  const results = await scene.client.enqueueMany([
    task('strict', 'h', '1'),
    task('strict', 'h', '9'),
    task('lax', 'h', '9'),
    task('lax', 'versioned', '9'),
  ])
  assert.ok(results.every(({ ok }) => ok))
  scene
    .work({ queues: ['strict', 'lax'], handlers: { h: () => 'unversioned' } })
    .handle('h', () => 'one', { version: '1' })
    .handle('versioned', () => 'older', { version: '2' })
    .handle('versioned', () => 'latest', { version: '3' })

  const resultOf = async (id: string) => Buffer.from((await scene.finished(id)).result).toString()
  assert.equal(await resultOf('strict h 1'), 'one')
  assert.equal(await resultOf('lax h 9'), 'unversioned')
  assert.equal(await resultOf('lax versioned 9'), 'latest')
  const dead = await scene.finished('strict h 9')
  assert.equal(dead.status, 'DEAD')
  assert.equal(dead.attempts[0]?.error?.type, 'rdq.VersionMismatch')
})

scenario('execution_timeout', async (scene) => {
  await scene.client.putQueue(QUEUE, { execution: { timeoutMs: 1_000 }, retry: { maxAttempts: 1 } })
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  let reason: unknown
  scene.work({
    concurrency: 1,
    handlers: {
      h: async (_claim, signal) => {
        reason = await aborted(signal)
        return 'too late to count'
      },
    },
  })

  const task = await scene.finished(id)

  assert.equal(task.status, 'DEAD')
  assert.equal(task.attempts.length, 1)
  assert.equal(task.attempts[0]?.error?.type, 'rdq.Timeout')
  assert.ok(reason instanceof HandlerStopped)
  assert.equal(reason.why, 'timeout')
})

scenario('progress_and_result', async (scene) => {
  const largest = new Uint8Array(RESULT_BYTES_MAX).fill(7)
  const [resumed, empty, binary, full] = await scene.client.enqueueMany([
    { queue: QUEUE, handlerRef: 'resumes', initialBackoffMs: 1 },
    { queue: QUEUE, handlerRef: 'returns', payload: '' },
    { queue: QUEUE, handlerRef: 'returns', payload: EVERY_BYTE },
    { queue: QUEUE, handlerRef: 'returns', payload: largest },
  ])
  const seen: Uint8Array[] = []
  scene.work({
    handlers: {
      resumes: (claim) => {
        seen.push(new Uint8Array(claim.progress))
        if (claim.attemptNo === 1) {
          claim.setProgress('replaced')
          claim.setProgress(EVERY_BYTE)
          throw new Error('half way')
        }
      },
      returns: (claim) => claim.payload,
    },
  })

  const task = await scene.finished(resumed?.id ?? '')
  assert.equal(task.status, 'SUCCEEDED')
  assert.deepEqual(seen, [new Uint8Array(), EVERY_BYTE])
  for (const [result, expected] of [
    [empty, new Uint8Array()],
    [binary, EVERY_BYTE],
    [full, largest],
  ] as const) {
    const done = await scene.finished(result?.id ?? '')
    assert.equal(done.status, 'SUCCEEDED')
    assert.deepEqual(new Uint8Array(done.result), expected)
  }
})

scenario('progress is stored before a failure, also by a server that was away', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h', initialBackoffMs: 1 })
  const started = new Gate()
  const ends = new Gate()
  const failed = new Gate()
  const seen: string[] = []
  scene.work({
    logger: {
      ...quiet,
      debug: (message) => {
        if (message === 'heartbeats failed') failed.open()
      },
    },
    handlers: {
      h: async (claim) => {
        seen.push(Buffer.from(claim.progress).toString())
        if (claim.attemptNo === 1) {
          started.open()
          await ends.opened
          claim.setProgress('half')
          throw new Error('broken')
        }
      },
    },
  })
  await started.opened

  await scene.server.kill()
  ends.open()
  await failed.opened
  await scene.server.restart()

  assert.equal((await scene.finished(id)).status, 'SUCCEEDED')
  assert.deepEqual(seen, ['', 'half'])
})

scenario('a snooze that is refused is a failure', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h', maxAttempts: 1 })
  scene.work({
    handlers: {
      h: () => {
        throw new Snooze(1e15)
      },
    },
  })

  const task = await scene.finished(id)

  assert.equal(task.status, 'DEAD')
  assert.equal(task.attempts[0]?.error?.type, 'rdq.OutcomeRefused')
})

scenario('result_too_large', async (scene) => {
  const sizes = [RESULT_BYTES_MAX + 1, 3 * 1024 * 1024]
  const results = await scene.client.enqueueMany(
    sizes.map((size) => ({ queue: QUEUE, handlerRef: 'h', payload: String(size), maxAttempts: 1 })),
  )
  const errors: string[] = []
  const nothing = () => undefined
  const error = (message: string) => errors.push(message)
  scene.work({
    concurrency: 1,
    logger: { debug: nothing, info: nothing, warn: nothing, error },
    handlers: { h: (claim) => new Uint8Array(Number(claim.text())) },
  })

  for (const { id } of results) {
    const task = await scene.finished(id)
    assert.equal(task.status, 'DEAD')
    assert.equal(task.attempts.length, 1)
    assert.equal(task.attempts[0]?.error?.type, 'rdq.OutcomeRefused')
  }
  assert.equal(errors.length, 2)
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h', payload: '3' })
  assert.equal((await scene.finished(id)).result.length, 3)
})
