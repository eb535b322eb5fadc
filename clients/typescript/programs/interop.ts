/** Works with the other languages' clients: see "Works with each other" in ../../README.md. */

import { createHash } from 'node:crypto'
import { parseArgs } from 'node:util'
import { Permanent, RdqClient } from '../src/index.js'

const GREETING = '🚀 ñ مرحبا'
const HANDLER = 'interop.echo'
const WORK_MAX_MS = 60_000
const LANGUAGES = new Set(['go', 'java', 'python', 'typescript', 'rust'])

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    server: { type: 'string' },
    queue: { type: 'string' },
    prefix: { type: 'string' },
    count: { type: 'string' },
  },
})
const server = required(values.server, '--server')
const queue = required(values.queue, '--queue')
const count = Number(required(values.count, '--count'))

function required(value: string | undefined, name: string): string {
  if (value === undefined) {
    throw new TypeError(`${name} is missing`)
  }
  return value
}

function payloadOf(id: string): Buffer {
  const everyByte = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))
  return Buffer.concat([Buffer.from(`${id}\0${GREETING}`), everyByte])
}

async function produce(): Promise<boolean> {
  const prefix = required(values.prefix, '--prefix')
  await using client = new RdqClient(server)
  const results = await client.enqueueMany(
    Array.from({ length: count }, (_, index) => {
      const id = `${prefix}-${String(index + 1)}`
      const headers = { language: 'typescript', greeting: GREETING }
      return { queue, handlerRef: HANDLER, id, payload: payloadOf(id), headers }
    }),
  )
  for (const result of results) {
    if (!result.ok) {
      console.error(result.id, result.error)
    }
  }
  return results.every(({ ok }) => ok)
}

async function work(): Promise<boolean> {
  const succeeded = new Set<string>()
  const over = new AbortController()
  await using client = new RdqClient(server)
  const worker = client.worker({ queues: [queue] })
  let isFine = true
  worker.handle(HANDLER, (claim) => {
    const language = claim.headers['language'] ?? ''
    const isSame =
      payloadOf(claim.id).equals(claim.payload) &&
      claim.headers['greeting'] === GREETING &&
      LANGUAGES.has(language)
    if (!isSame) {
      isFine = false
      over.abort()
      throw new Permanent(`${claim.id} came otherwise than it was sent`)
    }
    succeeded.add(claim.id)
    if (succeeded.size >= count) {
      over.abort()
    }
    return createHash('sha256').update(claim.payload).digest()
  })
  worker.start()
  const timer = setTimeout(() => {
    isFine = false
    console.error(`${String(succeeded.size)} of ${String(count)} after 60 s`)
    over.abort()
  }, WORK_MAX_MS)
  await new Promise((resolve) => {
    over.signal.addEventListener('abort', resolve)
  })
  clearTimeout(timer)
  await worker.stop() // every outcome is answered
  for (const id of succeeded) {
    isFine &&= (await client.get(id)).status === 'SUCCEEDED'
  }
  return isFine
}

const command = positionals[0]
if (command !== 'produce' && command !== 'work') {
  throw new TypeError('a command is missing: produce or work')
}
process.exitCode = (await (command === 'produce' ? produce() : work())) ? 0 : 1
