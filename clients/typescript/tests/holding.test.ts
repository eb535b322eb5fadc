/** Scenarios of claims that are held: leases, their loss, and how many at once. */

import assert from 'node:assert/strict'
import { HandlerStopped, type Claim } from '../src/index.js'
import { TaskService } from '../src/proto.js'
import { QUEUE, quiet, type Scene, scenario } from './harness/scene.js'
import { aborted, Gate, until } from './harness/until.js'

scenario('lease_extended', async (scene) => {
  const leaseMs = 2_000
  const gates = new Map<string, Gate>()
  const runs: string[] = []
  scene.work({
    handlers: {
      h: async ({ id }) => {
        runs.push(id)
        await gates.get(id)?.opened
      },
    },
  })

  /** Whether nobody else got the task in four leases; undefined if the machine stood still meanwhile. */
  const isKept = async (id: string): Promise<boolean | undefined> => {
    gates.set(id, new Gate())
    await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h', id, leaseMs })
    await until('the handler runs', () => (runs.includes(id) ? true : undefined))
    const machine = { hasStoodStill: false }
    let askedAt = performance.now()
    const isLong = await until('it ran for four leases', async () => {
      const isTaken = (await scene.claim()) !== undefined
      const { claimedAt, leaseExpiresAt } = await scene.client.get(id)
      machine.hasStoodStill ||= performance.now() - askedAt > leaseMs / 3
      askedAt = performance.now()
      if (isTaken || runs.filter((run) => run === id).length > 1) {
        return false
      }
      return Number(leaseExpiresAt) - Number(claimedAt) >= 5 * leaseMs ? true : undefined
    })
    gates.get(id)?.open()
    return !isLong && machine.hasStoodStill ? undefined : isLong
  }

  // No heartbeat keeps a lease through a stop of the whole process, so that says nothing.
  let id = ''
  const kept = await until('a time without a standstill', async () => {
    id = `task-${String(gates.size)}`
    return isKept(id)
  })

  assert.equal(kept, true)
  const task = await scene.finished(id)
  assert.equal(task.status, 'SUCCEEDED')
  assert.equal(runs.filter((run) => run === id).length, 1)
  assert.equal(task.attempts.length, 1)
  assert.equal(task.leaseExpiredCount, 0)
})

scenario('lease_lost_mid_handler', async (scene) => {
  const proxy = await scene.proxy()
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const started = new Gate()
  const stopped = new Gate<unknown>()
  const returned = new Gate()
  const worker = scene.work(
    {
      concurrency: 1, // with free handlers, the server would send the task to the silent worker again
      leaseMs: 1_000,
      handlers: {
        h: async (_claim, signal) => {
          started.open()
          stopped.open(await aborted(signal))
          setImmediate(() => {
            returned.open()
          })
          return 'the first'
        },
      },
    },
    scene.connect(proxy.address),
  )
  await started.opened

  proxy.goSilent()
  const rival = await until('another claimed it', () => scene.claim())
  proxy.heal()

  const reason = await stopped.opened
  assert.ok(reason instanceof HandlerStopped)
  assert.equal(reason.why, 'lost')
  await returned.opened
  await worker.stop() // it has nothing more to say
  assert.equal((await scene.client.get(id)).claimedBy, 'rival')
  await scene.client.call(TaskService.method.complete, {
    ...{ id, claimToken: rival.claimToken },
    result: Buffer.from('the second'),
  })
  const task = await scene.client.get(id)
  assert.equal(task.status, 'SUCCEEDED')
  assert.equal(Buffer.from(task.result).toString(), 'the second')
  assert.deepEqual(
    task.attempts.map(({ outcome }) => outcome),
    ['LEASE_EXPIRED', 'SUCCESS'],
  )
})

scenario('lease_all_but_gone', async (scene) => {
  const leaseMs = 2_000
  const ids = ['hog', 'late']
  await scene.client.enqueueMany(
    ids.map((id) => ({
      queue: QUEUE,
      handlerRef: 'h',
      id,
      leaseMs,
      priority: id === 'hog' ? 1 : 0,
    })),
  )
  const started: string[] = []
  const givenBack: unknown[] = []
  scene.work({
    concurrency: 2,
    logger: {
      ...quiet,
      debug: (message, { taskId }) => {
        if (message.includes('given back unstarted')) givenBack.push(taskId)
      },
    },
    handlers: {
      h: ({ id }) => {
        started.push(id)
        if (id === 'hog' && started.length === 1) {
          // Both arrived in one message; a handler that never yields keeps the other from its start.
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, leaseMs * 0.95)
        }
      },
    },
  })

  const task = await scene.finished('late')

  assert.equal(task.status, 'SUCCEEDED')
  assert.equal(task.attempts.length, 1)
  assert.equal(task.attempts[0]?.attemptNo, 1)
  assert.equal(task.leaseExpiredCount, 0)
  // The claim that came late was given back, and the next one was worked.
  assert.deepEqual(givenBack, ['late'])
  assert.equal(started.filter((id) => id === 'late').length, 1)
})

scenario('cancel_mid_handler', async (scene) => {
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const started = new Gate()
  const stopped = new Gate<unknown>()
  scene.work({
    handlers: {
      h: async (_claim, signal) => {
        started.open()
        stopped.open(await aborted(signal))
        return 'does not count'
      },
    },
  })
  await started.opened

  assert.deepEqual(await scene.client.cancel(id), { cancelled: true, status: 'CANCELLED' })

  const reason = await stopped.opened
  assert.ok(reason instanceof HandlerStopped)
  assert.equal(reason.why, 'cancelled')
  // The worker is as free as before.
  const next = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'other' })
  assert.equal((await scene.finished(next.id)).status, 'DEAD')
  const task = await scene.client.get(id)
  assert.equal(task.status, 'CANCELLED')
  assert.equal(task.result.length, 0)
})

scenario('redelivery', async (scene) => {
  const proxy = await scene.proxy()
  const { id } = await scene.client.enqueue({ queue: QUEUE, handlerRef: 'h' })
  const claims: Claim[] = []
  const started = new Gate()
  const secondStarted = new Gate()
  const secondEnds = new Gate()
  const firstReturned = new Gate()
  let reason: unknown
  scene.work(
    {
      concurrency: 2,
      leaseMs: 1_000,
      handlers: {
        h: async (claim, signal) => {
          claims.push(claim)
          if (claims.length > 1) {
            secondStarted.open()
            await secondEnds.opened
            return 'the second'
          }
          started.open()
          reason = await aborted(signal)
          // It runs on, beside the second.
          await secondStarted.opened
          setImmediate(() => {
            firstReturned.open()
          })
          return 'the first'
        },
      },
    },
    scene.connect(proxy.address),
  )
  await started.opened

  proxy.goSilent()
  const rival = await until('another claimed it', () => scene.claim())
  const { claimToken } = rival
  await scene.client.call(TaskService.method.release, { id, claimToken })
  proxy.heal()

  await firstReturned.opened
  assert.ok(reason instanceof HandlerStopped)
  assert.equal(reason.why, 'lost')
  assert.equal((await scene.client.get(id)).status, 'IN_FLIGHT')
  secondEnds.open()
  const task = await scene.finished(id)
  assert.equal(Buffer.from(task.result).toString(), 'the second')
  // Under load the second's short lease may run out as well; then there is a third, of the same result.
  assert.ok(claims.length >= 2)
  assert.ok(claims[0] && claims[1] && claims[1].generation > claims[0].generation)
})

scenario('bounded_concurrency', async (scene) => {
  const tasks = Array.from({ length: 50 }, () => ({ queue: QUEUE, handlerRef: 'h' }))
  const results = await scene.client.enqueueMany(tasks)
  let running = 0
  let most = 0
  scene.work({
    concurrency: 4,
    handlers: {
      h: async () => {
        running += 1
        most = Math.max(most, running)
        await assertInFlight(scene, 4)
        running -= 1
      },
    },
  })

  await until('all have ended', async () => {
    const stats = await assertInFlight(scene, 4)
    return stats.succeeded === 50 ? true : undefined
  })

  assert.equal(most, 4)
  for (const { id } of results) {
    const task = await scene.client.get(id)
    assert.equal(task.status, 'SUCCEEDED')
    assert.equal(task.attempts.length, 1)
  }
})

async function assertInFlight(scene: Scene, atMost: number) {
  const [stats] = await scene.client.stats([QUEUE])
  assert.ok(stats)
  assert.ok(stats.inFlight <= atMost, `${String(stats.inFlight)} claims in flight`)
  return stats
}
