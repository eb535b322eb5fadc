/** Scenarios of the operator's half, and of errors. */

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http2'
import { create, toBinary } from '@bufbuild/protobuf'
import { anyPack } from '@bufbuild/protobuf/wkt'
import {
  Code,
  CursorBindingMismatchError,
  IdConflictError,
  InvalidArgumentError,
  InvalidCursorError,
  InvalidNameError,
  MessageTooLargeError,
  NotFoundError,
  PayloadTooLargeError,
  Permanent,
  QueueNotEmptyError,
  RdqClient,
  RdqError,
  ReservedNameError,
  CasConflictError,
  InvalidSpecError,
  OutboxClaimMismatchError,
  OutboxMissingError,
  StaleClaimError,
} from '../src/index.js'
import { ErrorInfoSchema, StatusSchema } from '../src/gen/google/rpc/status_pb.js'
import { OutboxService, RecordService, ScheduleService, TaskService } from '../src/proto.js'
import { freePort } from './harness/server.js'
import { QUEUE, type Scene, scenario } from './harness/scene.js'
import { refusal, until } from './harness/until.js'

scenario('page_iteration', async (scene) => {
  const { client } = scene
  await die(scene, 30)
  const tasks = Array.from({ length: 70 }, () => ({ queue: QUEUE, handlerRef: 'waits' }))
  await client.enqueueMany(tasks)

  const all = await client.list(QUEUE, { pageSize: 30 }).toArray()
  assert.equal(all.length, 100)
  assert.equal(new Set(all.map(({ id }) => id)).size, 100)

  const sizes: number[] = []
  const dead = new Set<string>()
  for await (const page of client.dlqList(QUEUE, { pageSize: 12 }).pages()) {
    sizes.push(page.items.length)
    for (const task of page.items) {
      assert.equal(task.status, 'DEAD')
      assert.ok(!dead.has(task.id))
      dead.add(task.id)
    }
  }
  assert.ok(sizes.length >= 3, sizes.join())
  assert.equal(dead.size, 30)

  const list = client.list(QUEUE, { pageSize: 10, status: 'PENDING' })
  const { items, nextPageToken } = await list.page()
  assert.equal(items.length, 10)
  assert.ok(nextPageToken)
  assert.equal((await list.page(nextPageToken)).items.length, 10)
  const middle = Math.floor(nextPageToken.length / 2)
  const other = nextPageToken[middle] === 'A' ? 'B' : 'A'
  const tampered = nextPageToken.slice(0, middle) + other + nextPageToken.slice(middle + 1)
  assert.ok((await refusal(list.page(tampered))) instanceof InvalidCursorError)
})

scenario('operator_calls', async (scene) => {
  const { client } = scene
  const config = {
    retry: {
      maxAttempts: 3,
      initialBackoffMs: 1_500,
      multiplier: 1.5,
      maxBackoffMs: 60_000,
      jitter: 0,
    },
    classification: { retryable: ['http.5*'], permanent: ['http.4??'] },
    execution: { leaseMs: 20_000, timeoutMs: 90_000, strictLeases: true },
    limits: { maxPayloadBytes: 1_000 },
    retention: { succeededMs: 1_000_000, cancelledMs: 2_000_000, deadMs: 3_000_000 },
    handler: { versionMismatch: 'dead_letter' as const },
    paused: false,
  }
  const put = await client.putQueue('configured', config)
  assert.deepEqual(put.config, config)
  const got = await client.getQueue('configured')
  assert.deepEqual(got.config, config)
  assert.deepEqual(got.effective, config)
  assert.ok(got.updatedAt)
  assert.equal((await client.getQueue('unheard of')).config, undefined)
  assert.equal((await client.getQueue('unheard of')).effective.retry?.maxAttempts, 5)
  const names = async () =>
    (await client.listQueues({ pageSize: 1 }).toArray()).map(({ name }) => name)
  assert.deepEqual(await names(), ['configured'])
  assert.equal(await client.deleteQueue('configured'), true)
  assert.equal(await client.deleteQueue('configured'), false)

  assert.equal((await client.pauseQueue(QUEUE)).effective.paused, true)
  const { id } = await client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  assert.equal(await scene.claim(), undefined)
  assert.equal((await client.resumeQueue(QUEUE)).effective.paused, false)
  const claimed = await until('claims go on', () => scene.claim())
  assert.equal(claimed.task?.id, id)
  assert.equal((await client.stats([QUEUE]))[0]?.inFlight, 1)
  assert.deepEqual(await client.cancel(id), { cancelled: true, status: 'CANCELLED' })
  assert.deepEqual(await client.cancel(id), { cancelled: false, status: 'CANCELLED' })

  const ids = await die(scene, 8)
  const counts: number[] = []
  const onProgress = (count: number) => counts.push(count)
  const depth = async () => (await client.stats([QUEUE]))[0]?.dlqDepth
  assert.equal(await depth(), 8)
  assert.equal(await client.redrive(QUEUE, { all: true }, { dryRun: true, onProgress }), 8)
  assert.equal(counts.at(-1), 8)
  assert.equal(await client.redrive(QUEUE, { ids: ids.slice(0, 2) }), 2)
  assert.equal(
    await client.redrive(QUEUE, { filter: { errorType: 'odd' } }, { spreadOverMs: 60_000 }),
    3,
  )
  assert.equal(await depth(), 3)
  assert.equal(await client.purge(QUEUE, { filter: { handlerRef: 'other' } }), 0)
  assert.equal(await client.purge(QUEUE, { all: true }, { dryRun: true }), 3)
  assert.equal(await client.purge(QUEUE, { ids: ids.slice(-2, -1) }), 1)
  assert.equal(await client.purge(QUEUE, { all: true }), 2)
  assert.equal(await depth(), 0)
  const [stats] = await client.stats()
  assert.equal(stats?.queue, QUEUE)
  assert.equal(stats.pending, 5)
  assert.equal(stats.cancelled, 1)
  assert.equal((await client.capabilities()).contractVersion.split('.')[0], '1')
})

scenario('errors_by_reason', async (scene) => {
  const { client } = scene
  const task = { queue: QUEUE, handlerRef: 'h' }
  await client.enqueue({ ...task, id: 'taken' })
  await client.enqueueMany(Array.from({ length: 3 }, () => task))
  const { nextPageToken } = await client.list(QUEUE, { pageSize: 1 }).page()
  await client.call(OutboxService.method.enqueue, { outbox: 'o', id: 'message' })
  const claimToken = Buffer.from('never issued')
  const provoked = [
    [StaleClaimError, () => client.call(TaskService.method.complete, { id: 'taken', claimToken })],
    [QueueNotEmptyError, () => client.deleteQueue(QUEUE)],
    [
      CasConflictError,
      () => client.call(RecordService.method.compareAndSet, { key: 'k', expectedRevision: 3n }),
    ],
    [
      InvalidSpecError,
      () =>
        client.call(ScheduleService.method.putSchedule, {
          schedule: { name: 's', spec: 'never', queue: QUEUE, handlerRef: 'h' },
        }),
    ],
    [
      OutboxMissingError,
      () =>
        client.call(OutboxService.method.markProjected, {
          ...{ id: 'nobody', workerId: 'w', generation: 1n },
        }),
    ],
    [
      OutboxClaimMismatchError,
      () =>
        client.call(OutboxService.method.markProjected, {
          ...{ id: 'message', workerId: 'w', generation: 1n },
        }),
    ],
    [NotFoundError, () => client.get('nobody')],
    [IdConflictError, () => client.enqueue({ ...task, queue: 'other', id: 'taken' })],
    [InvalidNameError, () => client.enqueue({ ...task, queue: ' ' })],
    [ReservedNameError, () => client.enqueue({ ...task, queue: '__rdq_mine' })],
    [InvalidArgumentError, () => client.enqueue({ ...task, maxAttempts: 0 })],
    [InvalidCursorError, () => client.list(QUEUE).page('no token')],
    [CursorBindingMismatchError, () => client.list('other', { pageSize: 1 }).page(nextPageToken)],
    [
      PayloadTooLargeError,
      () => client.enqueue({ ...task, payload: new Uint8Array(1024 * 1024 + 1) }),
    ],
    [
      MessageTooLargeError,
      () => client.enqueue({ ...task, payload: new Uint8Array(9 * 1024 * 1024) }),
    ],
  ] as const
  for (const [Expected, call] of provoked) {
    const error = await refusal(call())
    assert.equal(error.constructor, Expected, `${String(error)} ${String(error.reason)}`)
    assert.equal(error.name, Expected.name)
    assert.equal(error.retryable, false)
    assert.equal(error.outcomeUnknown, false)
    assert.notEqual(error.message, '')
  }
  const notFound = await refusal(client.get('nobody'))
  assert.equal(notFound.code, Code.NOT_FOUND)
  assert.equal(notFound.reason, 'NOT_FOUND')
  assert.equal(notFound.metadata['task_id'], 'nobody')

  // What no server of today says.
  const future = await refusalOfTheFuture()
  assert.equal(future.constructor, RdqError)
  assert.equal(future.code, Code.FAILED_PRECONDITION)
  assert.equal(future.reason, 'MOON_TOO_LOW')
  assert.deepEqual(future.metadata, { phase: 'new' })
})

/** So many dead letters, of which every second is of another type than `odd`. */
async function die(scene: Scene, count: number): Promise<string[]> {
  const results = await scene.client.enqueueMany(
    Array.from({ length: count }, (_, index) => ({
      ...{ queue: QUEUE, handlerRef: 'dies', id: `dead-${String(index)}` },
    })),
  )
  const worker = scene.work({
    handlers: {
      dies: (claim) => {
        const isOdd = Number(claim.id.slice('dead-'.length)) % 2 === 1
        throw new Permanent('to be buried', { type: isOdd ? 'odd' : 'even' })
      },
    },
  })
  for (const { id } of results) {
    await scene.finished(id)
  }
  await worker.stop()
  return results.map(({ id }) => id)
}

/** The error that a client makes of a reason that it does not know. */
async function refusalOfTheFuture(): Promise<RdqError> {
  const info = create(ErrorInfoSchema, {
    ...{ domain: 'rdq', reason: 'MOON_TOO_LOW' },
    metadata: { phase: 'new' },
  })
  const status = create(StatusSchema, {
    code: Code.FAILED_PRECONDITION,
    details: [anyPack(ErrorInfoSchema, info)],
  })
  const server = createServer()
  server.on('stream', (stream) => {
    const answer = {
      ...{ ':status': 200, 'content-type': 'application/grpc' },
      'grpc-status': String(Code.FAILED_PRECONDITION),
      'grpc-status-details-bin': Buffer.from(toBinary(StatusSchema, status)).toString('base64'),
    }
    stream.respond(answer, { endStream: true })
  })
  const port = await freePort()
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const client = new RdqClient(`127.0.0.1:${String(port)}`)
  try {
    return await refusal(client.get('anything'))
  } finally {
    await client.close()
    server.close()
  }
}
