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
import java.util.function.Supplier;

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

  /** Runs an attempt, in a span under its producer's. */
  static Outcome attempt(Claim claim, Supplier<Outcome> attempt) {
    return IS_THERE ? WithOpenTelemetry.attempt(claim, attempt) : attempt.get();
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

    static Outcome attempt(Claim claim, Supplier<Outcome> attempt) {
      Context parent =
          W3CTraceContextPropagator.getInstance().extract(Context.root(), claim.headers(), HEADERS);
      Span span =
          // Not `get`, after which the application could not set its own any more.
          GlobalOpenTelemetry.getOrNoop()
              .getTracer("io.rdq.client")
              .spanBuilder("rdq.handle")
              .setParent(parent)
              .setSpanKind(SpanKind.CONSUMER)
              .setAttribute("rdq.queue", claim.task().queue())
              .setAttribute("rdq.task_id", claim.id())
              .setAttribute("rdq.attempt", claim.attemptNumber())
              .startSpan();
      Scope scope = span.makeCurrent();
      try {
        Outcome outcome = attempt.get();
        if (isFailure(claim, outcome)) {
          // Not its message, which may quote what the task carries.
          span.setAttribute("error.type", outcome.failure.type());
          span.setStatus(StatusCode.ERROR);
        }
        return outcome;
      } finally {
        scope.close();
        span.end();
      }
    }

    /** Whether the attempt counts as failed: one that lost its claim or is given back does not. */
    private static boolean isFailure(Claim claim, Outcome outcome) {
      boolean isSent = claim.cancelReason().map(CancelReason.TIMEOUT::equals).orElse(true);
      return switch (outcome.kind) {
        case FAIL, FAIL_RETRYABLE, DEAD_LETTER -> isSent;
        case COMPLETE, RESCHEDULE, RELEASE -> false;
      };
    }
  }
}
