/** Scenarios of the producer, and of what is carried as it was given. */

import assert from 'node:assert/strict'
import { create } from '@bufbuild/protobuf'
import { WireType } from '@bufbuild/protobuf/wire'
import {
  IdConflictError,
  InvalidArgumentError,
  type Claim,
  PayloadTooLargeError,
  type TaskInput,
} from '../src/index.js'
import { AttemptErrorSchema, AttemptSchema, TaskSchema, TaskService } from '../src/proto.js'
import { QUEUE, scenario } from './harness/scene.js'
import { refusal, until } from './harness/until.js'

const EVERY_BYTE = Uint8Array.from({ length: 256 }, (_, byte) => byte)
const MANY_SCRIPTS = '🚀 ñ مرحبا שלום 你好 e\u0301'

scenario('happy_path', async (scene) => {
  const one = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'echo', payload: 'one' })
  const many = await scene.client.enqueueMany(
    Array.from({ length: 20 }, (_, index) => ({
      queue: QUEUE,
      handlerRef: 'echo',
      payload: `many ${String(index)}`,
    })),
  )
  assert.equal(one.created, true)
  assert.equal(one.status, 'PENDING')
  assert.ok(many.every((result) => result.ok && result.created))

  scene.work({ handlers: { echo: (claim) => `echo of ${claim.text()}` } })

  const expected = [[one.id, 'one'], ...many.map(({ id }, index) => [id, `many ${String(index)}`])]
  for (const [id = '', payload = ''] of expected) {
    const task = await scene.finished(id)
    assert.equal(task.status, 'SUCCEEDED')
    assert.equal(Buffer.from(task.result).toString(), `echo of ${payload}`)
    assert.equal(task.attempts.length, 1)
  }
})

scenario('enqueue_options', async (scene) => {
  const { client } = scene
  const input: TaskInput = {
    queue: QUEUE,
    handlerRef: 'h',
    id: 'chosen',
    payload: '{"a": 1}',
    contentType: 'application/json',
    headers: { tenant: 'acme' },
    handlerVersion: 'v7',
    priority: -3,
    expiresInMs: 3_600_000,
    maxAttempts: 7,
    leaseMs: 45_500,
    initialBackoffMs: 1_250,
    retentionDeadMs: 86_400_000,
  }
  assert.equal((await client.enqueue(input)).id, 'chosen')
  await client.enqueue({ queue: QUEUE, handlerRef: 'h', id: 'urgent', priority: 9 })
  await client.enqueue({
    queue: QUEUE,
    handlerRef: 'h',
    id: 'later',
    delayMs: 90_000,
    priority: 99,
  })
  const dueAt = new Date('2999-01-02T03:04:05.678Z')
  const expiresAt = new Date('2999-02-03T04:05:06.789Z')
  await client.enqueue({ queue: QUEUE, handlerRef: 'h', id: 'dated', dueAt, expiresAt })

  const claims: Claim[] = []
  scene.work({
    concurrency: 1,
    handlers: {
      h: (claim) => {
        claims.push(claim)
      },
    },
  })
  const stored = await scene.finished('chosen')

  assert.deepEqual(
    claims.map(({ id }) => id),
    ['urgent', 'chosen'],
  )
  const claim = claims[1]
  assert.ok(claim)
  assert.deepEqual(claim.json(), { a: 1 })
  for (const task of [claim.task, stored]) {
    assert.equal(task.contentType, 'application/json')
    assert.deepEqual(task.headers, { tenant: 'acme' })
    assert.equal(task.handlerVersion, 'v7')
    assert.equal(task.priority, -3)
    assert.equal(task.maxAttempts, 7)
    assert.equal(task.leaseMs, 45_500)
    assert.equal(task.initialBackoffMs, 1_250)
    assert.equal(task.retentionDeadMs, 86_400_000)
  }
  assert.equal(claim.maxAttempts, 7)
  assert.equal(Number(stored.expiresAt) - Number(stored.createdAt), 3_600_000)
  const later = await client.get('later')
  assert.equal(later.status, 'PENDING')
  assert.equal(Number(later.dueAt) - Number(later.createdAt), 90_000)
  const dated = await client.get('dated')
  assert.deepEqual([dated.dueAt, dated.expiresAt], [dueAt, expiresAt])
})

scenario('enqueue_repeated', async (scene) => {
  const input = { queue: QUEUE, handlerRef: 'h', id: 'same' }
  assert.equal((await scene.client.enqueue(input)).created, true)

  const again = await scene.client.enqueue(input)
  assert.deepEqual(again, { id: 'same', created: false, status: 'PENDING' })

  const conflict = await refusal(scene.client.enqueue({ ...input, queue: 'other' }))
  assert.ok(conflict instanceof IdConflictError)
  assert.equal(conflict.metadata['task_id'], 'same')
})

scenario('enqueue_answer_lost', async (scene) => {
  const proxy = await scene.proxy()
  const client = scene.connect(proxy.address)
  await client.capabilities() // the connection stands
  proxy.loseAnswers()

  const answer = client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const first = await until('the first try arrived', async () => {
    const [task] = await scene.client.list(QUEUE).toArray()
    return task
  })
  proxy.heal()

  assert.deepEqual(await answer, { id: first.id, created: false, status: 'PENDING' })
  assert.equal((await scene.client.list(QUEUE).toArray()).length, 1)
})

scenario('enqueue_many_mixed', async (scene) => {
  await scene.client.enqueue({ queue: 'other', handlerRef: 'h', id: 't-1234' })
  const inputs = Array.from({ length: 2_500 }, (_, index): TaskInput => {
    const input = {
      queue: QUEUE,
      handlerRef: 'h',
      id: `t-${String(index)}`,
      payload: 'x'.repeat(2_000),
    }
    if (index % 500 === 7) {
      return { ...input, headers: { 'rdq.mine': 'no' } }
    }
    return index === 1_999 ? { ...input, payload: new Uint8Array(1024 * 1024 + 1) } : input
  })

  const results = await scene.client.enqueueMany(inputs)

  assert.equal(results.length, 2_500)
  for (const [index, result] of results.entries()) {
    assert.equal(result.id, `t-${String(index)}`)
    if (index % 500 === 7) {
      assert.ok(!result.ok && result.error instanceof InvalidArgumentError)
    } else if (index === 1_999) {
      assert.ok(!result.ok && result.error instanceof PayloadTooLargeError)
      assert.equal(result.error.sizeBytes, 1024 * 1024 + 1)
    } else if (index === 1_234) {
      assert.ok(!result.ok && result.error instanceof IdConflictError)
    } else {
      assert.ok(result.ok && result.created, JSON.stringify(result))
    }
  }
  const [stats] = await scene.client.stats([QUEUE])
  assert.equal(stats?.pending, 2_500 - 5 - 1 - 1)
})

scenario('unicode_and_binary', async (scene) => {
  const id = `id ${MANY_SCRIPTS}`
  const headers = { [MANY_SCRIPTS]: MANY_SCRIPTS }
  const queue = `queue ${MANY_SCRIPTS}`
  class Ñandú extends Error {}
  await scene.client.enqueue({
    ...{ queue, handlerRef: MANY_SCRIPTS, id, headers, payload: EVERY_BYTE },
    initialBackoffMs: 1,
  })
  const claims: Claim[] = []
  scene.work({
    queues: [queue],
    handlers: {
      [MANY_SCRIPTS]: (claim) => {
        claims.push(claim)
        if (claims.length === 1) {
          throw new Ñandú(`broken ${MANY_SCRIPTS}`)
        }
        return claim.payload
      },
    },
  })

  const task = await scene.finished(id)

  assert.equal(task.status, 'SUCCEEDED')
  for (const seen of [...claims, task]) {
    assert.equal(seen.id, id)
    assert.deepEqual(seen.headers, headers)
    assert.deepEqual(new Uint8Array(seen.payload), EVERY_BYTE)
  }
  assert.deepEqual(new Uint8Array(task.result), EVERY_BYTE)
  assert.equal(task.attempts[0]?.error?.type, 'Ñandú')
  assert.equal(task.attempts[0].error.message, `broken ${MANY_SCRIPTS}`)
})

scenario('huge_payload', async (scene) => {
  const limit = 2 * 1024 * 1024
  await scene.client.putQueue(QUEUE, { limits: { maxPayloadBytes: limit } })
  const payloadOf = (index: number) => new Uint8Array(limit).fill(index + 1)
  const results = await scene.client.enqueueMany(
    Array.from({ length: 5 }, (_, index) => ({
      ...{ queue: QUEUE, handlerRef: 'h', id: `huge-${String(index)}` },
      payload: payloadOf(index),
    })),
  )
  assert.ok(results.every(({ ok }) => ok))

  const refused = await refusal(
    scene.client.enqueue({ queue: QUEUE, handlerRef: 'h', payload: new Uint8Array(limit + 1) }),
  )
  assert.ok(refused instanceof PayloadTooLargeError)
  assert.equal(refused.limitBytes, limit)
  assert.equal(refused.sizeBytes, limit + 1)

  scene.work({
    handlers: {
      h: (claim) => {
        const index = Number(claim.id.slice('huge-'.length))
        assert.ok(Buffer.from(payloadOf(index)).equals(claim.payload))
      },
    },
  })
  for (const { id } of results) {
    const task = await scene.finished(id)
    assert.equal(task.status, 'SUCCEEDED')
    assert.equal(task.payload.length, limit)
  }
})

scenario('unknown_fields', async (scene) => {
  const number = { no: 1_000, wireType: WireType.Varint, data: Uint8Array.of(42) }
  const text = { no: 1_001, wireType: WireType.LengthDelimited, data: Uint8Array.of(3, 97, 98, 99) } // its length is part of it
  const error = create(AttemptErrorSchema, { type: 'old' })
  error.$unknown = [number]
  const attempt = create(AttemptSchema, { attemptNo: 1, error })
  attempt.$unknown = [text]
  const task = create(TaskSchema, {
    ...{ id: 'newer', queue: QUEUE, handlerRef: 'h', maxAttempts: 1 },
    attempts: [attempt],
  })
  task.$unknown = [number, text]
  await scene.client.call(TaskService.method.enqueue, { task })
  const claims: Claim[] = []
  scene.work({
    handlers: {
      h: (claim) => {
        claims.push(claim)
        if (claims.length === 1) {
          throw new Error('not yet')
        }
      },
    },
  })

  const dead = await scene.finished('newer')
  assert.equal(dead.status, 'DEAD')
  assert.equal(await scene.client.redrive(QUEUE, { ids: ['newer'] }), 1)
  const done = await until('it succeeded', async () => {
    const now = await scene.client.get('newer')
    return now.status === 'SUCCEEDED' ? now : undefined
  })

  assert.equal(claims.length, 2)
  for (const { raw } of [dead, done, ...claims.map((claim) => claim.task)]) {
    assert.deepEqual(plain(raw.$unknown), plain([number, text]))
    assert.deepEqual(plain(raw.attempts[0]?.$unknown), plain([text]))
    assert.deepEqual(plain(raw.attempts[0]?.error?.$unknown), plain([number]))
  }
})

/** Comparable, and in one order. */
function plain(fields: { no: number; wireType: WireType; data: Uint8Array }[] | undefined) {
  const plainFields = (fields ?? []).map(({ no, wireType, data }) => ({
    no,
    wireType,
    data: [...data],
  }))
  return plainFields.sort((left, right) => left.no - right.no)
}
