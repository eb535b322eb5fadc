/**
 * Ships what was ordered, which is to say: publishes a shipment for each event of an order. Of several of these
 * programs one works, which holds the lock. The ledger is a record of rdq for each order, made in the same commit as
 * the shipment: an event that comes again finds it there.
 */

import { setTimeout as sleep } from 'node:timers/promises'
import { CasConflictError, RdqClient } from '@rdq/client'
import { type StreamEvent, TransactionService } from '@rdq/client/proto'

const stop = new AbortController()
process.once('SIGTERM', () => {
  stop.abort()
})
const owner = process.argv[2] ?? 'ship'
const client = new RdqClient(process.env['RDQ_SERVER'] ?? '127.0.0.1:7420')

async function ship(event: StreamEvent): Promise<void> {
  const { order } = JSON.parse(new TextDecoder().decode(event.payload)) as { order: string }
  const payload = new TextEncoder().encode(order)
  const ledger = { key: `shipped:${order}`, value: payload, expectedRevision: 0n }
  try {
    await client.callOnce(TransactionService.method.commit, {
      operations: [
        { operation: { case: 'compareAndSet', value: ledger } },
        { operation: { case: 'publish', value: { stream: 'shipments', payload } } },
      ],
    })
  } catch (error) {
    if (!(error instanceof CasConflictError)) throw error
    console.log(`${order} again`)
  }
}

/** Holds the lock, if it is to be had, and ships until it is lost or something fails. */
async function shipLocked(): Promise<void> {
  const lock = await client.lock('shipping', {
    owner,
    ttlMs: 5_000,
    waitMs: 3_600_000,
    signal: stop.signal,
  })
  if (lock === undefined) return
  console.log(`${owner} holds the lock, generation ${String(lock.generation)}`)
  try {
    const subscription = client.subscription({
      stream: 'orders',
      consumer: 'shipping',
      handler: ship,
    })
    await subscription.run(AbortSignal.any([stop.signal, lock.signal]))
  } finally {
    await lock.release()
  }
}

while (!stop.signal.aborted) {
  try {
    await shipLocked()
  } catch (error) {
    // The server is away, or its database is. What was not shipped comes again, and what was is in the ledger.
    if (stop.signal.aborted) break
    console.log('once more:', error)
    await sleep(200)
  }
}
await client.close()
