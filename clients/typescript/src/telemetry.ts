/**
 * The trace of a task: the producer's span rides in its headers and is the parent of the handler's. All of it does
 * nothing without `@opentelemetry/api` in the process.
 */

import { createRequire } from 'node:module'
import type * as Otel from '@opentelemetry/api'

const TRACEPARENT = 'traceparent'
const TRACESTATE = 'tracestate'

const api = load()

function load(): typeof Otel | undefined {
  try {
    return createRequire(import.meta.url)('@opentelemetry/api') as typeof Otel
  } catch {
    return undefined
  }
}

/** The headers, with the active span in them if there is one and the caller set neither of the two. */
export function withTraceHeaders(
  headers: Readonly<Record<string, string>> | undefined,
): Readonly<Record<string, string>> | undefined {
  const isSet = headers !== undefined && (TRACEPARENT in headers || TRACESTATE in headers)
  if (api === undefined || isSet) {
    return headers
  }
  const span = api.trace.getSpanContext(api.context.active())
  if (span === undefined || !api.isSpanContextValid(span)) {
    return headers
  }
  const flags = span.traceFlags.toString(16).padStart(2, '0')
  const traced: Record<string, string> = {
    ...headers,
    [TRACEPARENT]: `00-${span.traceId}-${span.spanId}-${flags}`,
  }
  const state = span.traceState?.serialize()
  if (state !== undefined && state !== '') {
    traced[TRACESTATE] = state
  }
  return traced
}

/** What a handler's span says. */
export interface HandlerSpan {
  queue: string
  taskId: string
  attemptNo: number
  handlerRef: string
  headers: Readonly<Record<string, string>>
}

/**
 * Runs a handler in a span `rdq.handle`, whose parent is the producer's. The span's status is an error if what the
 * handler came to is one by `failureType`, which names its type. Messages and stacks stay out of it: they may quote a
 * payload.
 */
export async function inHandlerSpan<T>(
  about: HandlerSpan,
  run: () => Promise<T>,
  failureType: (ended: T) => string | undefined,
): Promise<T> {
  if (api === undefined) {
    return run()
  }
  const { SpanKind, SpanStatusCode, context, trace } = api
  const parent = producerContext(api, about.headers)
  const options: Otel.SpanOptions = {
    kind: SpanKind.CONSUMER,
    attributes: {
      'rdq.queue': about.queue,
      'rdq.task_id': about.taskId,
      'rdq.attempt': about.attemptNo,
      'rdq.handler_ref': about.handlerRef,
    },
  }
  const span = trace.getTracer('@rdq/client').startSpan('rdq.handle', options, parent)
  try {
    const ended = await context.with(trace.setSpan(parent, span), run)
    const type = failureType(ended)
    if (type !== undefined) {
      span.addEvent('exception', { 'exception.type': type })
      span.setStatus({ code: SpanStatusCode.ERROR })
    }
    return ended
  } finally {
    span.end()
  }
}

function producerContext(
  otel: typeof Otel,
  headers: Readonly<Record<string, string>>,
): Otel.Context {
  const remote = parseTraceparent(headers[TRACEPARENT])
  if (remote === undefined) {
    return otel.ROOT_CONTEXT
  }
  const state = headers[TRACESTATE]
  const spanContext: Otel.SpanContext = {
    ...remote,
    isRemote: true,
    ...(state === undefined ? {} : { traceState: otel.createTraceState(state) }),
  }
  return otel.isSpanContextValid(spanContext)
    ? otel.trace.setSpanContext(otel.ROOT_CONTEXT, spanContext)
    : otel.ROOT_CONTEXT
}

/** The parts of a W3C `traceparent`; later versions of it may have more parts behind these. */
export function parseTraceparent(
  text: string | undefined,
): { traceId: string; spanId: string; traceFlags: number } | undefined {
  const match = /^(?!ff)[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(?:-.*)?$/.exec(
    text ?? '',
  )
  if (match === null) {
    return undefined
  }
  const [, traceId = '', spanId = '', flags = ''] = match
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) }
}
