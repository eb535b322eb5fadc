/** The scenario of traces, in a process of its own since OpenTelemetry's parts are the process's. */

import assert from 'node:assert/strict'
import {
  context,
  createTraceState,
  type SpanContext,
  SpanStatusCode,
  trace,
} from '@opentelemetry/api'
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks'
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base'
import { Snooze } from '../src/index.js'
import { QUEUE, scenario } from './harness/scene.js'

const exporter = new InMemorySpanExporter()
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] })
trace.setGlobalTracerProvider(provider)
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable())

scenario('trace_context', async (scene) => {
  const task = { queue: QUEUE, handlerRef: 'h', maxAttempts: 1 }
  const producer: SpanContext = {
    traceId: '0af7651916cd43dd8448eb211c80319c',
    spanId: 'b7ad6b7169203331',
    traceFlags: 1,
    traceState: createTraceState('vendor=value'),
  }
  const inSpan = trace.setSpanContext(context.active(), producer)
  const own = '00-11111111111111111111111111111111-2222222222222222-01'
  const [traced, chosen, failing, stated] = await context.with(inSpan, () =>
    scene.client.enqueueMany([
      { ...task, id: 'traced' },
      { ...task, id: 'chosen', headers: { traceparent: own } },
      { ...task, id: 'failing', handlerRef: 'fails' },
      { ...task, id: 'stated', headers: { tracestate: 'own=1' } },
      { ...task, id: 'snoozing', handlerRef: 'snoozes' },
    ]),
  )
  await scene.client.enqueue({ ...task, id: 'untraced' })
  assert.deepEqual(traced?.ok, true)

  let snoozed = false
  const seen = new Map<string, SpanContext | undefined>()
  scene.work({
    handlers: {
      h: async (claim) => {
        await Promise.resolve() // the span is active beyond an await
        seen.set(claim.id, trace.getActiveSpan()?.spanContext())
      },
      fails: () => {
        throw new TypeError('may quote a payload')
      },
      snoozes: (claim) => {
        if (!snoozed) {
          snoozed = true
          throw new Snooze(1)
        }
        seen.set(claim.id, undefined)
      },
    },
  })
  const stored = await scene.finished('traced')
  for (const id of [chosen?.id, failing?.id, stated?.id, 'snoozing', 'untraced']) {
    await scene.finished(id ?? '')
  }

  assert.deepEqual(stored.headers, {
    traceparent: `00-${producer.traceId}-${producer.spanId}-01`,
    tracestate: 'vendor=value',
  })
  assert.equal(seen.get('traced')?.traceId, producer.traceId)
  assert.equal(seen.get('traced')?.traceState?.serialize(), 'vendor=value')
  assert.equal(seen.get('chosen')?.traceId, '1'.repeat(32))
  assert.deepEqual((await scene.client.get('untraced')).headers, {})
  assert.notEqual(seen.get('untraced')?.traceId, producer.traceId)
  const spanOf = (id: string) =>
    exporter.getFinishedSpans().find(({ attributes }) => attributes['rdq.task_id'] === id)
  const span = spanOf('traced')
  assert.equal(span?.name, 'rdq.handle')
  assert.equal(span.parentSpanId, producer.spanId)
  assert.equal(span.attributes['rdq.queue'], QUEUE)
  assert.equal(span.attributes['rdq.attempt'], 1)
  assert.deepEqual((await scene.client.get('stated')).headers, { tracestate: 'own=1' })
  assert.equal(spanOf('failing')?.status.code, SpanStatusCode.ERROR)
  assert.deepEqual(
    spanOf('failing')?.events.map(({ attributes }) => attributes),
    [{ 'exception.type': 'TypeError' }],
  )
  assert.equal(spanOf('snoozing')?.status.code, SpanStatusCode.UNSET)
})
