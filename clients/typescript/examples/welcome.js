/**
 * Sends welcome mails: a producer and a worker in one program, with a mail server that is not always there.
 *
 *     RDQ_SERVER=127.0.0.1:7420 node examples/welcome.js
 */

import { Permanent, RdqClient, TaskError } from '@rdq/client'

const client = new RdqClient(process.env.RDQ_SERVER ?? '127.0.0.1:7420')
const people = ['ada@example.com', 'grace@example.com', 'nobody']

// Ids that are chosen make the whole program safe to run again: nobody gets a second mail.
const results = await client.enqueueMany(
  people.map((to) => ({
    id: `welcome-${to}`,
    queue: 'welcome',
    handlerRef: 'send-mail',
    payload: JSON.stringify({ to }),
    contentType: 'application/json',
    initialBackoffMs: 100,
  })),
)
for (const result of results) {
  if (!result.ok) throw result.error
}

const worker = client.worker({
  queues: ['welcome'],
  concurrency: 2,
  handlers: {
    'send-mail': async (claim, signal) => {
      const { to } = claim.json()
      if (!to.includes('@')) throw new Permanent(`${to} is no address`)
      if (claim.attemptNo === 1) throw new TaskError('smtp.421', 'the mail server is busy')
      await sendMail(to, signal)
      return `sent to ${to}`
    },
  },
})
worker.start()

for (const { id } of results) {
  const task = await finished(id)
  const said = Buffer.from(task.result).toString() || task.attempts.at(-1)?.error?.message
  console.log(`${task.id}: ${task.status} after ${task.attempts.length} attempts: ${said}`)
}

for await (const dead of client.dlqList('welcome')) {
  console.log(`dead letter: ${dead.id}`)
}
await client.close() // stops the worker first

/** Stands for a mail server. What is handed the signal ends when the work is to be dropped. */
async function sendMail(to, signal) {
  const { setTimeout } = await import('node:timers/promises')
  await setTimeout(5, undefined, { signal })
}

async function finished(id) {
  for (;;) {
    const task = await client.get(id)
    if (task.finishedAt) return task
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
