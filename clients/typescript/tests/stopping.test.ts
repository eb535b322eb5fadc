/** Scenarios of workers and servers that stop. */

import assert from 'node:assert/strict'
import { CONTRACT_VERSION } from '../src/contract.js'
import {
  type Claim,
  HandlerStopped,
  OtherContractVersionError,
  RdqClient,
  type Worker,
} from '../src/index.js'
import { TaskService } from '../src/proto.js'
import { answering, Fake } from './harness/fake.js'
import { QUEUE, quiet, type Scene, scenario } from './harness/scene.js'
import { aborted, Gate, until } from './harness/until.js'

scenario('drain', async (scene) => {
  await drains(scene, scene.client)
})

scenario('drain_grace_over', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const started = new Gate()
  let reason: unknown
  const worker = scene.work({
    handlers: {
      h: async (_claim, signal) => {
        started.open()
        reason = await aborted(signal)
        throw new Error('does not count')
      },
    },
  })
  await started.opened

  await worker.stop({ graceMs: 50 })

  assert.ok(reason instanceof HandlerStopped)
  assert.equal(reason.why, 'shutdown')
  const task = await scene.client.get(id)
  assert.equal(task.status, 'PENDING')
  assert.equal(task.attemptCount, 0)
  assert.deepEqual(task.attempts, [])
  assert.equal((await scene.claim())?.task?.id, id) // due at once
})

scenario('a success after the grace counts while the claim is held', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const started = new Gate()
  const worker = scene.work({
    handlers: {
      h: async (_claim, signal) => {
        started.open()
        await aborted(signal)
        return 'done'
      },
    },
  })
  await started.opened

  await worker.stop({ graceMs: 0 })

  const task = await scene.client.get(id)
  assert.equal(task.status, 'SUCCEEDED')
  assert.equal(Buffer.from(task.result).toString(), 'done')
})

scenario('server_restart', async (scene) => {
  await worksThrough(scene, () => scene.server.kill())
})

// It would wait an hour for a worker that does not let go.
scenario('a server that is told to end is let go', async (scene) => {
  await worksThrough(scene, () => scene.server.terminate())
})

scenario('a draining server still takes outcomes', async (scene) => {
  const drains = new Gate()
  const [good, bad] = await scene.client.enqueueMany([
    { queue: QUEUE, handlerRef: 'h', payload: 'good' },
    { queue: QUEUE, handlerRef: 'h', payload: 'bad', maxAttempts: 1 },
  ])
  const started: string[] = []
  const worker = scene.work({
    logger: {
      ...quiet,
      info: (message) => {
        if (message === 'the server drains') drains.open()
      },
    },
    handlers: {
      h: async (claim) => {
        started.push(claim.id)
        await drains.opened
        if (claim.text() === 'good') return 'done'
        claim.setProgress('half')
        throw new Error('broken')
      },
    },
  })
  await until('both run', () => (started.length === 2 ? true : undefined))

  await scene.server.terminate()
  await worker.stop({ graceMs: 0 }) // it has nothing more to say to the next one
  await scene.server.restart()

  const done = await scene.client.get(good?.id ?? '')
  assert.equal(done.status, 'SUCCEEDED')
  assert.equal(Buffer.from(done.result).toString(), 'done')
  assert.equal(done.attempts.length, 1)
  const dead = await scene.client.get(bad?.id ?? '')
  assert.equal(dead.status, 'DEAD')
  assert.equal(dead.attempts.length, 1)
  assert.equal(Buffer.from(dead.progress).toString(), 'half')
})

scenario('claim_due_fallback', async (scene) => {
  const front = await scene.withoutWork()
  const client = scene.connect(front.address)
  const warnings: string[] = []
  const claims = new Map<string, Claim>()
  const cancelled = new Gate<unknown>()
  scene.work(
    {
      queues: ['mixed'],
      logger: { ...quiet, warn: (message) => warnings.push(message) },
      handlers: {
        echo: (claim) => claim.payload,
        fails: (claim) => {
          if (claim.attemptNo === 1) throw new Error('once')
        },
        waits: async (claim, signal) => {
          claims.set(claim.id, claim)
          const reason = await aborted(signal)
          // A machine that stood still for a lease gives the task out again.
          if (reason instanceof HandlerStopped && reason.why !== 'lost') cancelled.open(reason)
        },
      },
    },
    client,
  )
  const task = { queue: 'mixed', initialBackoffMs: 1 }
  const happy = await client.enqueue({ ...task, handlerRef: 'echo', payload: 'hello' })
  const failing = await client.enqueue({ ...task, handlerRef: 'fails' })
  // It learns of the end by its heartbeats, so they are frequent.
  const waiting = await client.enqueue({ ...task, handlerRef: 'waits', leaseMs: 1_000 })

  assert.equal(Buffer.from((await scene.finished(happy.id)).result).toString(), 'hello')
  assert.equal((await scene.finished(failing.id)).attempts.length, 2)
  await until('the handler runs', () => claims.get(waiting.id))
  await client.cancel(waiting.id)
  const reason = await cancelled.opened
  assert.ok(reason instanceof HandlerStopped)
  assert.equal(reason.why, 'cancelled')
  assert.equal(front.refused, 1)
  assert.equal(warnings.filter((message) => message.includes('ClaimDue')).length, 1)

  await drains(scene, client)
})

scenario('other_contract_version', async (scene) => {
  assert.equal((await scene.client.capabilities()).contractVersion, CONTRACT_VERSION)
  const fake = await Fake.start(
    answering(TaskService.method.getCapabilities, () => ({ contractVersion: '2.7' })),
  )
  const client = new RdqClient(fake.address)
  try {
    // A producer is not held up by it: it asks for nothing but what it wants.
    await assert.rejects(client.enqueue({ queue: QUEUE, handlerRef: 'h' }))
    assert.deepEqual(fake.called, ['Enqueue'])

    const worker = client.worker({ queues: [QUEUE], handlers: { h: () => '' }, logger: quiet })
    await assert.rejects(worker.run(), (error) => {
      assert.ok(error instanceof OtherContractVersionError)
      assert.equal(error.reason, 'OTHER_CONTRACT_VERSION')
      assert.equal(error.clientVersion, CONTRACT_VERSION)
      assert.equal(error.serverVersion, '2.7')
      assert.ok(error.message.includes(CONTRACT_VERSION) && error.message.includes('2.7'))
      return true
    })
    assert.deepEqual(fake.called, ['Enqueue', 'GetCapabilities']) // nothing was claimed
  } finally {
    await client.close()
    fake.close()
  }
})

scenario('a stop with nothing held does not wait for a server out of reach', async (scene) => {
  const proxy = await scene.proxy()
  const started = new Gate()
  const ended = new Gate()
  const worker = scene.work(
    {
      graceMs: 3_600_000,
      handlers: {
        h: async (_claim, signal) => {
          started.open()
          await aborted(signal)
          ended.open()
        },
      },
    },
    scene.connect(proxy.address),
  )
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  await started.opened
  // Of a task that is cancelled there is no outcome whose answer could be lost.
  await scene.client.cancel(id)
  await ended.opened
  proxy.goSilent()

  await worker.stop() // the test's own timeout is far below the grace
})

/** A server that ends while handlers run and tasks wait, and comes back: every task ends once. */
async function worksThrough(scene: Scene, endServer: () => Promise<void>): Promise<void> {
  const tasks = Array.from({ length: 12 }, () => ({ queue: QUEUE, handlerRef: 'h' }))
  const results = await scene.client.enqueueMany(tasks)
  const gate = new Gate()
  const started: string[] = []
  scene.work({
    concurrency: 4,
    handlers: {
      h: async (claim) => {
        started.push(claim.id)
        await gate.opened
        return claim.id
      },
    },
  })
  await until('four run', () => (started.length === 4 ? true : undefined))

  await endServer()
  gate.open() // their outcomes find no server
  await scene.server.restart()

  for (const { id } of results) {
    const task = await scene.finished(id)
    assert.equal(task.status, 'SUCCEEDED')
    assert.equal(Buffer.from(task.result).toString(), id)
    assert.equal(task.attempts.length, 1)
  }
  assert.equal(new Set(started).size, 12)
  assert.equal(started.length, 12)
}

/** A worker that stops while its handlers run: they end, and nothing new is claimed. */
async function drains(scene: Scene, client: Scene['client']): Promise<void> {
  const leaseMs = 1_000
  const results = await client.enqueueMany(
    Array.from({ length: 5 }, () => ({ queue: QUEUE, handlerRef: 'h', leaseMs })),
  )
  const gate = new Gate()
  const started: string[] = []
  const worker: Worker = scene.work(
    {
      concurrency: 3,
      handlers: {
        h: async (claim, signal) => {
          started.push(claim.id)
          await gate.opened
          return signal.aborted ? 'stopped' : 'done'
        },
      },
    },
    client,
  )
  await until('three run', () => (started.length === 3 ? true : undefined))

  const stopped = worker.stop()
  const [first = ''] = started
  const before = await scene.client.get(first)
  await until('the lease went on for two more', async () => {
    const now = await scene.client.get(first)
    const gained = Number(now.leaseExpiresAt) - Number(before.leaseExpiresAt)
    return gained >= 2 * leaseMs ? true : undefined
  })
  gate.open()
  await stopped

  const ended = await Promise.all(results.map(({ id }) => scene.client.get(id)))
  for (const task of ended) {
    const isStarted = started.includes(task.id)
    assert.equal(task.status, isStarted ? 'SUCCEEDED' : 'PENDING')
    assert.equal(Buffer.from(task.result).toString(), isStarted ? 'done' : '')
    assert.equal(task.attempts.length, isStarted ? 1 : 0)
  }
  assert.equal(started.length, 3)
}
