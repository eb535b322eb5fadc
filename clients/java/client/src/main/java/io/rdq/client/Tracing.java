package io.rdq.client;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.SpanKind;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.propagation.W3CTraceContextPropagator;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.TextMapGetter;
import java.util.Map;

/** Carries the trace from producer to handler, where OpenTelemetry is on the class path. */
final class Tracing {
  private static final boolean IS_THERE = isThere();

  private Tracing() {}

  /** Adds the active span to the headers, unless the caller did. */
  static void inject(io.rdq.v1.Task.Builder task) {
    if (IS_THERE && !task.containsHeaders("traceparent") && !task.containsHeaders("tracestate")) {
      WithOpenTelemetry.inject(task);
    }
  }

  /** Runs a handler, in a span under its producer's. */
  static Object handle(Handler handler, Job job) throws Exception {
    return IS_THERE ? WithOpenTelemetry.handle(handler, job) : handler.handle(job);
  }

  private static boolean isThere() {
    try {
      Class.forName("io.opentelemetry.api.GlobalOpenTelemetry");
      return true;
    } catch (ClassNotFoundException | LinkageError missing) {
      return false;
    }
  }

  /** Touched only where OpenTelemetry is there, since it cannot be loaded elsewhere. */
  private static final class WithOpenTelemetry {
    private static final TextMapGetter<Map<String, String>> HEADERS =
        new TextMapGetter<>() {
          @Override
          public String get(Map<String, String> headers, String key) {
            return headers == null ? null : headers.get(key);
          }
        };

    static void inject(io.rdq.v1.Task.Builder task) {
      W3CTraceContextPropagator.getInstance()
          .inject(Context.current(), task, io.rdq.v1.Task.Builder::putHeaders);
    }

    static Object handle(Handler handler, Job job) throws Exception {
      Context parent =
          W3CTraceContextPropagator.getInstance().extract(Context.root(), job.headers(), HEADERS);
      Span span =
          // Not `get`, after which the application could not set its own any more.
          GlobalOpenTelemetry.getOrNoop()
              .getTracer("io.rdq.client")
              .spanBuilder("rdq.handle")
              .setParent(parent)
              .setSpanKind(SpanKind.CONSUMER)
              .setAttribute("rdq.queue", job.task().queue())
              .setAttribute("rdq.task_id", job.id())
              .setAttribute("rdq.attempt", job.attemptNumber())
              .startSpan();
      Scope scope = span.makeCurrent();
      try {
        return handler.handle(job);
      } catch (Throwable thrown) {
        if (!(thrown instanceof SnoozeException)) {
          span.recordException(thrown);
          span.setStatus(StatusCode.ERROR);
        }
        throw thrown;
      } finally {
        scope.close();
        span.end();
      }
    }
  }
}
