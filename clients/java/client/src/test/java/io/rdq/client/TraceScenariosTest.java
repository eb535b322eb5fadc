package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.opentelemetry.api.GlobalOpenTelemetry;
import io.opentelemetry.api.OpenTelemetry;
import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.trace.Span;
import io.opentelemetry.api.trace.StatusCode;
import io.opentelemetry.api.trace.Tracer;
import io.opentelemetry.api.trace.TracerProvider;
import io.opentelemetry.context.Context;
import io.opentelemetry.context.Scope;
import io.opentelemetry.context.propagation.ContextPropagators;
import io.opentelemetry.sdk.trace.ReadWriteSpan;
import io.opentelemetry.sdk.trace.ReadableSpan;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.SpanProcessor;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.data.StatusData;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** A trace goes on from producer to handler. */
class TraceScenariosTest extends Scenario {
  /** What a handler finds. */
  private record Found(String traceId, ReadableSpan span) {}

  /** Without one that listens, no span is recorded. */
  private static final class Listens implements SpanProcessor {
    @Override
    public void onStart(Context parent, ReadWriteSpan span) {}

    @Override
    public boolean isStartRequired() {
      return true;
    }

    @Override
    public void onEnd(ReadableSpan span) {}

    @Override
    public boolean isEndRequired() {
      return false;
    }
  }

  @Test
  void traceContext() {
    SdkTracerProvider tracers =
        open(SdkTracerProvider.builder().addSpanProcessor(new Listens()).build());
    GlobalOpenTelemetry.set(
        new OpenTelemetry() {
          @Override
          public TracerProvider getTracerProvider() {
            return tracers;
          }

          @Override
          public ContextPropagators getPropagators() {
            return ContextPropagators.noop();
          }
        });
    operator.putQueue(QUEUE, QueueConfig.builder().maxAttempts(1).build());
    CompletableFuture<ReadableSpan> failing = new CompletableFuture<>();
    AtomicReference<ReadableSpan> snoozing = new AtomicReference<>();
    CompletableFuture<Found> found = new CompletableFuture<>();
    start(
        client
            .worker(QUEUE)
            .handler(
                "traced",
                claim -> {
                  Span span = Span.current();
                  found.complete(
                      new Found(span.getSpanContext().getTraceId(), (ReadableSpan) span));
                  return null;
                })
            .handler(
                "fails",
                claim -> {
                  failing.complete((ReadableSpan) Span.current());
                  throw new IllegalStateException("quotes " + new String(claim.payload()));
                })
            .handler(
                "snoozes",
                claim -> {
                  if (snoozing.compareAndSet(null, (ReadableSpan) Span.current())) {
                    throw new SnoozeException(Duration.ofMillis(10));
                  }
                  return null;
                }));

    Tracer tracer = tracers.get("test");
    Span parent = tracer.spanBuilder("producer").startSpan();
    String id;
    Scope scope = parent.makeCurrent();
    try {
      id = producer.enqueue(NewTask.of(QUEUE, "traced", "")).id();
    } finally {
      scope.close();
      parent.end();
    }

    await(id, TaskStatus.SUCCEEDED);
    Found handler = found.join();
    assertEquals(parent.getSpanContext().getTraceId(), handler.traceId());
    assertEquals(
        parent.getSpanContext().getSpanId(), handler.span().getParentSpanContext().getSpanId());
    assertEquals("rdq.handle", handler.span().getName());
    assertEquals(QUEUE, handler.span().getAttribute(AttributeKey.stringKey("rdq.queue")));
    assertEquals(id, handler.span().getAttribute(AttributeKey.stringKey("rdq.task_id")));
    assertEquals(1, handler.span().getAttribute(AttributeKey.longKey("rdq.attempt")));

    await(producer.enqueue(NewTask.of(QUEUE, "fails", "a secret")).id(), TaskStatus.DEAD);
    SpanData failed = failing.join().toSpanData();
    assertEquals(StatusCode.ERROR, failed.getStatus().getStatusCode());
    assertEquals(
        "java.lang.IllegalStateException",
        failed.getAttributes().get(AttributeKey.stringKey("error.type")));
    assertFalse(failed.toString().contains("a secret"), failed.toString());
    await(producer.enqueue(NewTask.of(QUEUE, "snoozes", "")).id(), TaskStatus.SUCCEEDED);
    StatusData snoozed = snoozing.get().toSpanData().getStatus();
    assertEquals(StatusCode.UNSET, snoozed.getStatusCode());

    String own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    Scope again = parent.makeCurrent();
    try {
      producer.enqueue(
          NewTask.builder("kept", "traced").id("kept").header("traceparent", own).build());
    } finally {
      again.close();
    }
    assertEquals(own, operator.get("kept").headers().get("traceparent"));
    producer.enqueue(NewTask.builder("kept", "traced").id("untraced").build());
    assertFalse(operator.get("untraced").headers().containsKey("traceparent"));
  }
}
