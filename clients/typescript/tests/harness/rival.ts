/** Another claimant than the worker under test: it claims by hand. */

import { create } from '@bufbuild/protobuf'
import { type ClaimedTask, ClaimDueRequestSchema, TaskService } from '../../src/proto.js'
import { toDuration } from '../../src/time.js'
import { Transport } from '../../src/transport.js'

/** One atomic claim of one task; undefined if none is due. */
export async function claimOne(
  address: string,
  { queue, leaseMs = 60_000 }: { queue: string; leaseMs?: number },
): Promise<ClaimedTask | undefined> {
  const transport = new Transport(address, {})
  try {
    const request = create(ClaimDueRequestSchema, {
      queues: [queue],
      workerId: 'rival',
      lease: toDuration(leaseMs, 'leaseMs'),
    })
    let claimed: ClaimedTask | undefined
    for await (const { tasks } of transport.serverStream(TaskService.method.claimDue, request)) {
      claimed ??= tasks[0]
    }
    return claimed
  } finally {
    transport.close()
  }
}
