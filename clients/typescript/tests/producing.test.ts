/** Scenarios of the producer. */

import assert from 'node:assert/strict'
import { QUEUE, scenario } from './harness/scene.js'

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

  scene.work({ handlers: { echo: (job) => `echo of ${job.text()}` } })

  for (const [id, payload] of [
    [one.id, 'one'],
    ...many.map((result, index) => [result.id, `many ${String(index)}`]),
  ] as [string, string][]) {
    const task = await scene.finished(id)
    assert.equal(task.status, 'SUCCEEDED')
    assert.equal(Buffer.from(task.result).toString(), `echo of ${payload}`)
    assert.equal(task.attempts.length, 1)
  }
})
