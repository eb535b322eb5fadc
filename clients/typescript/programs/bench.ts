/** How fast one worker is, and the bare call beside it: see "Speed" in ../../README.md. */

import { parseArgs } from 'node:util'
import { RdqClient } from '../src/index.js'

const CONCURRENCY = 256
const PAYLOAD_BYTES = 100
const ECHO_CALLS = 64
const ECHO_MS = 3_000

const { values } = parseArgs({
  options: { server: { type: 'string' }, tasks: { type: 'string' } },
})
if (values.server === undefined || values.tasks === undefined) {
  throw new TypeError('--server and --tasks are required')
}
const tasks = Number(values.tasks)
await using client = new RdqClient(values.server)

async function work(): Promise<number> {
  const queue = `bench-${String(process.pid)}-${String(Date.now())}`
  const payload = new Uint8Array(PAYLOAD_BYTES)
  const results = await client.enqueueMany(
    Array.from({ length: tasks }, () => ({ queue, handlerRef: 'nothing', payload })),
  )
  if (!results.every(({ ok }) => ok)) {
    throw new Error('a task was refused')
  }
  let startedAt = 0
  let started = 0
  const worker = client.worker({ queues: [queue], concurrency: CONCURRENCY })
  await new Promise<void>((resolve) => {
    worker.handle('nothing', () => {
      started += 1
      if (started === 1) startedAt = performance.now()
      if (started === tasks) resolve()
    })
    worker.start()
  })
  await worker.stop() // when the last outcome is answered
  return (tasks * 1000) / (performance.now() - startedAt)
}

async function echo(): Promise<number> {
  const startedAt = performance.now()
  let calls = 0
  const caller = async () => {
    while (performance.now() - startedAt < ECHO_MS) {
      await client.capabilities()
      calls += 1
    }
  }
  await Promise.all(Array.from({ length: ECHO_CALLS }, caller))
  return (calls * 1000) / (performance.now() - startedAt)
}

const tasksPerSecond = await work()
const echoPerSecond = await echo()
console.log(
  JSON.stringify({
    language: 'typescript',
    tasks_per_second: Math.round(tasksPerSecond),
    echo_per_second: Math.round(echoPerSecond),
  }),
)
