/** Answers that have fewer results than the request had items: none is taken for an answer, and none is lost. */

import assert from 'node:assert/strict'
import test from 'node:test'
import { create } from '@bufbuild/protobuf'
import { Code, RdqClient } from '../src/index.js'
import {
  ClaimedTaskSchema,
  type ExtendLeasesRequest,
  ExtendLeasesResponseSchema,
  type ResolveBatchRequest,
  ResolveBatchResponseSchema,
  type Task,
  TaskSchema,
  TaskService,
} from '../src/proto.js'
import { now, toDuration } from '../src/time.js'
import type { Transport } from '../src/transport.js'
import { HeldClaim } from '../src/worker/held.js'
import { Keeper } from '../src/worker/keeper.js'
import { Outbox } from '../src/worker/outbox.js'
import { toRelease } from '../src/worker/outcome.js'
import { answering, Fake } from './harness/fake.js'
import { quiet } from './harness/scene.js'
import { until } from './harness/until.js'

function heldFor(leaseMs: number, id: string): HeldClaim {
  const task = create(TaskSchema, { id })
  const claimed = create(ClaimedTaskSchema, {
    task,
    claimToken: Buffer.from(id),
    leaseRemaining: toDuration(leaseMs, 'leaseMs'),
  })
  return new HeldClaim(claimed, task, now())
}

/** A connection whose unary calls are answered so. */
function answeredBy(answer: (request: unknown) => unknown): Transport {
  return { unary: (_: unknown, request: unknown) => Promise.resolve(answer(request)) } as never
}

void test('an outcome without a result is sent again', async () => {
  const sent: string[][] = []
  const settled: string[] = []
  const transport = answeredBy((request) => {
    const { resolutions } = request as ResolveBatchRequest
    sent.push(resolutions.map(({ call }) => (call.value as { id: string }).id))
    // The first of the items has a result; the last has one that says nothing, once.
    const resolved = { outcome: { case: 'resolved', value: {} } } as const
    return create(ResolveBatchResponseSchema, {
      results: sent.length === 1 ? [resolved, {}] : resolutions.map(() => resolved),
    })
  })
  const outbox = new Outbox({
    transport,
    log: quiet,
    stream: () => undefined,
    settled: ({ id }) => settled.push(id),
  })
  for (const id of ['a', 'b', 'c']) {
    const held = heldFor(30_000, id)
    outbox.add(held, toRelease(held))
  }

  await until('all are settled', () => (settled.length === 3 ? true : undefined))

  outbox.close()
  assert.deepEqual(sent[0], ['a', 'b', 'c'])
  assert.deepEqual(sent.slice(1).flat().sort(), ['b', 'c'])
  assert.equal(settled[0], 'a')
})

void test('a heartbeat without a result is sent again, and the claim is not lost', async () => {
  const sent: string[][] = []
  const lost: string[] = []
  const transport = answeredBy((request) => {
    const { leases } = request as ExtendLeasesRequest
    sent.push(leases.map(({ id }) => id))
    return create(ExtendLeasesResponseSchema, { results: [] })
  })
  const keeper = new Keeper({
    transport,
    log: quiet,
    stream: () => undefined,
    lost: ({ id }) => lost.push(id),
  })
  keeper.add(heldFor(30, 'a'))

  await until('it was sent three times', () => (sent.length >= 3 ? true : undefined))

  keeper.close()
  assert.deepEqual(lost, [])
  assert.ok(sent.flat().every((id) => id === 'a'))
})

void test('a task without a result has an error of its own', async () => {
  const fake = await Fake.start(
    answering(TaskService.method.enqueueBatch, ({ tasks }) => ({
      results: tasks.slice(0, 1).map(({ id }: Task) => ({
        outcome: { case: 'enqueued' as const, value: { id, created: true } },
      })),
    })),
  )
  const client = new RdqClient(fake.address)
  try {
    const tasks = ['a', 'b', 'c'].map((id) => ({ queue: 'q', handlerRef: 'h', id }))
    const [first, ...others] = await client.enqueueMany(tasks)
    assert.ok(first?.ok && first.id === 'a' && first.created)
    assert.deepEqual(
      others.map(({ id }) => id),
      ['b', 'c'],
    )
    for (const other of others) {
      assert.ok(!other.ok && other.error.code === Code.INTERNAL && other.error.outcomeUnknown)
    }
  } finally {
    await client.close()
    fake.close()
  }
})
