/** Events, locks, outboxes and transactions. */

import assert from 'node:assert/strict'
import { CasConflictError, LockLostError, NotFoundError } from '../src/index.js'
import {
  LockService,
  type OutboxMessage,
  OutboxService,
  RecordService,
  StreamService,
  TransactionService,
} from '../src/proto.js'
import { quiet, scenario } from './harness/scene.js'
import { aborted, Gate, refusal, until } from './harness/until.js'

const text = (bytes: Uint8Array) => Buffer.from(bytes).toString()
const bytes = (of: string) => new Uint8Array(Buffer.from(of))

scenario('subscription', async (scene) => {
  const { client } = scene
  const stream = 'orders'
  const got: { offset: bigint; text: string }[] = []
  let isCured = false
  const subscription = (limit?: number) =>
    client.subscription({
      ...{ stream, consumer: 'mailer', logger: quiet },
      ...(limit === undefined ? {} : { limit }),
      handler: (event) => {
        if (text(event.payload) === 'poison' && !isCured) {
          throw new Error('poison')
        }
        got.push({ offset: event.offset, text: text(event.payload) })
      },
    })
  const publish = async (...texts: string[]) => {
    for (const each of texts) {
      await client.callOnce(StreamService.method.publish, { stream, payload: bytes(each) })
    }
  }
  const saved = async () => {
    const { offset } = await client.call(StreamService.method.getOffset, {
      ...{ stream, consumer: 'mailer' },
    })
    return offset
  }
  const handled = (count: number) =>
    until(`${String(count)} events`, () => (got.length >= count ? true : undefined))

  await publish('1', '2', '3')
  const first = new AbortController()
  let running = subscription(2).run(first.signal)
  await handled(3)
  await publish('4')
  await handled(4)
  await until('offsets are saved', async () =>
    (await saved()) === got.at(-1)?.offset ? true : undefined,
  )
  await scene.server.kill()
  await scene.server.restart()
  await publish('5', '6')
  await handled(6)
  first.abort()
  await running
  assert.equal(await saved(), got.at(-1)?.offset)

  await publish('7', 'poison', '9')
  await assert.rejects(subscription().run(new AbortController().signal), /poison/)
  assert.deepEqual(
    got.map((event) => event.text),
    ['1', '2', '3', '4', '5', '6', '7'],
  )
  assert.equal(await saved(), got.at(-1)?.offset)
  isCured = true
  const last = new AbortController()
  running = subscription().run(last.signal)
  await handled(9)
  last.abort()
  await running
  assert.deepEqual(
    got.map((event) => event.text),
    ['1', '2', '3', '4', '5', '6', '7', 'poison', '9'],
  )
})

scenario('lock_guard', async (scene) => {
  const { client } = scene
  const options = { ttlMs: 3_000, logger: quiet }
  const one = await client.lock('nightly', options)
  assert.ok(one)
  assert.equal(await client.lock('nightly', options), undefined)
  const held = () => client.call(LockService.method.getLock, { name: 'nightly' })
  const ends = (await held()).expiresAt?.seconds ?? 0n
  await until('it is held for several ttls', async () => {
    const { owner, generation, expiresAt } = await held()
    assert.equal(owner, one.owner)
    assert.equal(generation, one.generation)
    return (expiresAt?.seconds ?? 0n) > ends + 6n ? true : undefined
  })
  assert.equal(one.isLost, false)
  const waiting = client.lock('nightly', { ...options, waitMs: 60_000 })
  await one.release()
  const two = await waiting
  assert.ok(two)
  assert.ok(two.generation > one.generation)
  assert.equal(one.isLost, false)

  await scene.server.kill()
  assert.ok((await aborted(two.signal)) instanceof LockLostError)
  assert.equal(two.isLost, true)
  await scene.server.restart()
  await two.release()
  const three = await client.lock('nightly', { ...options, waitMs: 60_000 })
  assert.ok(three)
  assert.ok(three.generation > two.generation)
  await three.release()
  assert.equal((await held()).held, false)
})

scenario('outbox_relay', async (scene) => {
  const { client } = scene
  const outbox = 'mail'
  const seen: OutboxMessage[] = []
  const enqueue = (id: string) =>
    client.call(OutboxService.method.enqueue, {
      ...{ outbox, id, payload: bytes(id), headers: { to: 'ada' } },
    })
  const left = async () => {
    const { counts } = await client.call(OutboxService.method.countUnprojected, { outbox })
    return counts[0]?.unprojected
  }
  const keep = (message: OutboxMessage) => {
    seen.push(message)
  }

  const relay = client.outboxRelay({ outbox, logger: quiet })
  assert.equal(await relay.runOnce('relay-1', keep), false)
  await enqueue('a')
  assert.equal(await relay.runOnce('relay-1', keep), true)
  assert.equal(await relay.runOnce('relay-1', keep), false)
  assert.deepEqual(
    seen.map(({ id, payload, headers, attemptCount }) => [
      id,
      text(payload),
      headers,
      attemptCount,
    ]),
    [['a', 'a', { to: 'ada' }, 1]],
  )
  assert.equal(await left(), 0n)

  await enqueue('b')
  const stop = new AbortController()
  const running = client.outboxRelay({ logger: quiet }).run(
    'relay-2',
    (message) => {
      seen.push(message)
      if (message.attemptCount === 1) {
        throw new TypeError('the other side is away')
      }
    },
    stop.signal,
  )
  await until('it is delivered', async () => ((await left()) === 0n ? true : undefined))
  stop.abort()
  await running
  assert.deepEqual(
    seen.slice(1).map(({ id, attemptCount }) => [id, attemptCount]),
    [
      ['b', 1],
      ['b', 2],
    ],
  )
  assert.equal(seen[2]?.lastError, 'TypeError: the other side is away')

  // Another took the message over while it was delivered: its claim counts, and this one's end is no error.
  await enqueue('c')
  const came = new Gate()
  const goOn = new Gate()
  const carrying = client
    .outboxRelay({ outbox, leaseMs: 10, logger: quiet })
    .runOnce('relay-3', async () => {
      came.open()
      await goOn.opened
    })
  await came.opened
  const taken = await until('another has it', async () => {
    const { messages } = await client.call(OutboxService.method.claimBatch, {
      ...{ outbox, workerId: 'relay-4' },
    })
    return messages[0]
  })
  goOn.open()
  assert.equal(await carrying, true)
  assert.equal(await left(), 1n)
  const { id, workerId, generation } = taken
  await client.call(OutboxService.method.markProjected, { id, workerId, generation })
  assert.equal(await left(), 0n)
})

scenario('commit', async (scene) => {
  const { client } = scene
  const commit = (id: string) =>
    client.callOnce(TransactionService.method.commit, {
      operations: [
        { operation: { case: 'publish', value: { stream: 'orders', payload: bytes(id) } } },
        {
          operation: {
            case: 'enqueue',
            value: { task: { id, queue: 'orders', handlerRef: 'ship' } },
          },
        },
        { operation: { case: 'compareAndSet', value: { key: 'order', value: bytes(id) } } },
      ],
    })
  const there = async () => {
    const { events } = await client.call(StreamService.method.read, {
      ...{ stream: 'orders', start: { case: 'offset', value: 0n } },
    })
    const { record } = await client.call(RecordService.method.getRecord, { key: 'order' })
    assert.ok(record)
    return [events.map((event) => text(event.payload)), text(record.value), record.revision]
  }

  const { results } = await commit('first')
  assert.deepEqual(
    results.map(({ result }) => result.case),
    ['publish', 'enqueue', 'compareAndSet'],
  )
  assert.deepEqual(await there(), [['first'], 'first', 1n])
  assert.equal((await client.get('first')).handlerRef, 'ship')

  const error = await refusal(commit('second'))
  assert.ok(error instanceof CasConflictError)
  assert.equal(error.operationIndex, 2)
  assert.equal(error.metadata['key'], 'order')
  assert.equal(error.retryable, false)
  assert.deepEqual(await there(), [['first'], 'first', 1n])
  assert.ok((await refusal(client.get('second'))) instanceof NotFoundError)
})
