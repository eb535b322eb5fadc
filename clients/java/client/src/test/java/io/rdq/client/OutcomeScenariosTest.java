package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** What becomes of what a handler returns and throws. */
class OutcomeScenariosTest extends Scenario {
  /** An error with a name of its own. */
  private static final class Unavailable extends Exception implements HasErrorType {
    @Override
    public String errorType() {
      return "http.503";
    }
  }

  private String enqueue(String handlerRef) {
    return producer.enqueue(NewTask.of(QUEUE, handlerRef, "")).id();
  }

  @Test
  void retryThenSuccess() {
    operator.putQueue(QUEUE, promptRetries().build());
    AtomicInteger runs = new AtomicInteger();
    start(
        client
            .worker(QUEUE)
            .workerId("the-worker")
            .handler(
                "flaky",
                claim ->
                    switch (runs.incrementAndGet()) {
                      case 1 -> throw new IllegalStateException("first");
                      case 2 -> throw new Unavailable();
                      default -> "attempt " + claim.attemptNumber() + " of " + claim.maxAttempts();
                    }));

    Task task = await(enqueue("flaky"), TaskStatus.SUCCEEDED);

    assertEquals("attempt 3 of 5", text(task.result()));
    List<Attempt> attempts = task.attempts();
    assertEquals(3, attempts.size());
    assertEquals(AttemptOutcome.RETRYABLE_FAILURE, attempts.get(0).outcome());
    AttemptError first = attempts.get(0).error().orElseThrow();
    assertEquals("java.lang.IllegalStateException", first.type());
    assertEquals("first", first.message());
    assertTrue(first.stack().contains("OutcomeScenariosTest"), first.stack());
    AttemptError second = attempts.get(1).error().orElseThrow();
    assertEquals("http.503", second.type());
    assertEquals("", second.message());
    assertTrue(second.stack().contains("Unavailable"), second.stack());
    assertEquals(AttemptOutcome.SUCCESS, attempts.get(2).outcome());
    assertTrue(attempts.get(2).error().isEmpty());
    for (int i = 0; i < 3; i++) {
      assertEquals(i + 1, attempts.get(i).number());
      assertEquals("the-worker", attempts.get(i).workerId());
    }
  }

  @Test
  void retryAfterAndSnooze() {
    AtomicInteger runs = new AtomicInteger();
    BlockingQueue<Integer> numbers = new LinkedBlockingQueue<>();
    start(
        client
            .worker(QUEUE)
            .handler(
                "later",
                claim -> {
                  numbers.add(claim.attemptNumber());
                  return switch (runs.incrementAndGet()) {
                    case 1 -> throw new SnoozeException(Duration.ofMillis(10));
                    case 2 ->
                        throw new RetryAfterException(Duration.ofMillis(10), new Unavailable());
                    case 3 -> Outcome.snooze(Duration.ofMillis(10));
                    case 4 -> Outcome.retryAfter(Duration.ofMillis(10), new Unavailable());
                    default -> "done";
                  };
                }));

    Task task = await(enqueue("later"), TaskStatus.SUCCEEDED);

    assertEquals(List.of(1, 1, 2, 2, 3), new ArrayList<>(numbers));
    assertEquals(3, task.attempts().size());
    for (Attempt attempt : task.attempts().subList(0, 2)) {
      assertEquals(AttemptOutcome.RETRYABLE_FAILURE, attempt.outcome());
      assertEquals("http.503", attempt.error().orElseThrow().type());
    }
  }

  @Test
  void permanentFailure() {
    operator.putQueue(QUEUE, promptRetries().permanent("*State*").maxAttempts(2).build());
    start(
        client
            .worker(QUEUE)
            .handler(
                "thrown",
                claim -> {
                  throw new PermanentException("no such address", new Unavailable());
                })
            .handler("returned", claim -> Outcome.permanent("http.410", "gone"))
            .handler(
                "retryable",
                claim -> {
                  throw new RetryableException(new IllegalStateException("the glob says no"));
                }));

    Task thrown = await(enqueue("thrown"), TaskStatus.DEAD);
    assertEquals(1, thrown.attempts().size());
    assertEquals(AttemptOutcome.PERMANENT_FAILURE, thrown.attempts().get(0).outcome());
    assertEquals("http.503", thrown.attempts().get(0).error().orElseThrow().type());
    assertEquals("no such address", thrown.attempts().get(0).error().orElseThrow().message());
    Task returned = await(enqueue("returned"), TaskStatus.DEAD);
    assertEquals(1, returned.attempts().size());
    assertEquals("http.410", returned.attempts().get(0).error().orElseThrow().type());
    Task retried = await(enqueue("retryable"), TaskStatus.DEAD);
    assertEquals(2, retried.attempts().size(), "a marked failure is retried, whatever a glob says");
    AttemptError error = retried.attempts().get(0).error().orElseThrow();
    assertEquals("java.lang.IllegalStateException", error.type());
    assertEquals("the glob says no", error.message());
  }

  @Test
  void outcomeMapper() {
    start(
        client
            .worker(QUEUE)
            .handler("status", claim -> 404)
            .handler(
                "missing",
                claim -> {
                  throw new NoSuchElementException("nothing to do");
                })
            .handler("plain", claim -> "as ever")
            .outcomeMapper(
                (claim, returned, thrown) -> {
                  if (returned instanceof Integer status) {
                    return Outcome.permanent("http." + status, "answered " + status);
                  }
                  return thrown instanceof NoSuchElementException
                      ? Outcome.complete("nothing")
                      : null;
                }));

    Task status = await(enqueue("status"), TaskStatus.DEAD);
    assertEquals("http.404", status.attempts().get(0).error().orElseThrow().type());
    assertEquals("nothing", text(await(enqueue("missing"), TaskStatus.SUCCEEDED).result()));
    assertEquals("as ever", text(await(enqueue("plain"), TaskStatus.SUCCEEDED).result()));
  }

  @Test
  void unroutable() {
    start(client.worker(QUEUE).handler("known", claim -> null));

    Task task = await(enqueue("unknown"), TaskStatus.DEAD);

    assertEquals(1, task.attempts().size());
    assertEquals("rdq.Unroutable", task.attempts().get(0).error().orElseThrow().type());
  }

  @Test
  void versionMismatch() {
    operator.putQueue(
        "strict", QueueConfig.builder().versionMismatch(VersionMismatch.DEAD_LETTER).build());
    operator.putQueue(
        "lenient", QueueConfig.builder().versionMismatch(VersionMismatch.RUN_LATEST).build());
    start(
        client
            .worker("strict", "lenient")
            .handler("both", "v1", claim -> "v1")
            .handler("both", claim -> "unversioned")
            .handler("only", "v1", claim -> "v1")
            .handler("only", "v2", claim -> "v2"));

    assertEquals("v1", resultOf("strict", "both", "v1"));
    assertEquals("unversioned", resultOf("lenient", "both", "v9"));
    assertEquals("v2", resultOf("lenient", "only", "v9"));
    for (String handlerRef : List.of("both", "only")) {
      Task dead = await(enqueueVersion("strict", handlerRef, "v9"), TaskStatus.DEAD);
      assertEquals(1, dead.attempts().size());
      assertEquals("rdq.VersionMismatch", dead.attempts().get(0).error().orElseThrow().type());
    }
  }

  private String enqueueVersion(String queue, String handlerRef, String version) {
    return producer
        .enqueue(NewTask.builder(queue, handlerRef).handlerVersion(version).build())
        .id();
  }

  private String resultOf(String queue, String handlerRef, String version) {
    return text(await(enqueueVersion(queue, handlerRef, version), TaskStatus.SUCCEEDED).result());
  }

  @Test
  void executionTimeout() {
    operator.putQueue(
        QUEUE,
        QueueConfig.builder().executionTimeout(Duration.ofSeconds(1)).maxAttempts(1).build());
    CompletableFuture<CancelReason> reason = new CompletableFuture<>();
    start(
        client
            .worker(QUEUE)
            .concurrency(1)
            .handler(
                "endless",
                claim -> {
                  try {
                    blockUntilStopped();
                  } finally {
                    reason.complete(claim.cancelReason().orElse(null));
                  }
                  return null;
                }));

    Task task = await(enqueue("endless"), TaskStatus.DEAD);

    assertEquals(CancelReason.TIMEOUT, reason.join());
    assertEquals(1, task.attempts().size());
    assertEquals("rdq.Timeout", task.attempts().get(0).error().orElseThrow().type());
  }

  @Test
  void progressAndResult() {
    operator.putQueue(QUEUE, promptRetries().build());
    byte[] largest = new byte[64 << 10];
    largest[largest.length - 1] = 1;
    start(
        client
            .worker(QUEUE)
            .handler(
                "resumes",
                claim -> {
                  if (claim.attemptNumber() == 1) {
                    claim.progress("a quarter".getBytes());
                    claim.progress(allBytes());
                    throw new IllegalStateException("half way");
                  }
                  return claim.task().progress();
                })
            .handler("empty", claim -> new byte[0])
            .handler("nothing", claim -> null)
            .handler("binary", claim -> allBytes())
            .handler("largest", claim -> largest));

    Task resumed = await(enqueue("resumes"), TaskStatus.SUCCEEDED);
    assertEquals(2, resumed.attempts().size());
    assertArrayEquals(allBytes(), resumed.result());
    assertArrayEquals(new byte[0], await(enqueue("empty"), TaskStatus.SUCCEEDED).result());
    assertArrayEquals(new byte[0], await(enqueue("nothing"), TaskStatus.SUCCEEDED).result());
    assertArrayEquals(allBytes(), await(enqueue("binary"), TaskStatus.SUCCEEDED).result());
    assertArrayEquals(largest, await(enqueue("largest"), TaskStatus.SUCCEEDED).result());
  }

  @Test
  void resultTooLarge() {
    operator.putQueue(QUEUE, QueueConfig.builder().maxAttempts(1).build());
    start(
        client
            .worker(QUEUE)
            .handler("much", claim -> new byte[(64 << 10) + 1])
            .handler("more than a message", claim -> new byte[9 << 20])
            .handler("no bytes", claim -> 7)
            .handler("fine", claim -> "fine"));

    for (String handlerRef : List.of("much", "more than a message", "no bytes")) {
      Task task = await(enqueue(handlerRef), TaskStatus.DEAD);
      assertEquals(1, task.attempts().size());
      AttemptError error = task.attempts().get(0).error().orElseThrow();
      assertEquals("rdq.OutcomeRefused", error.type());
      assertTrue(!error.message().isEmpty());
    }
    assertEquals("fine", text(await(enqueue("fine"), TaskStatus.SUCCEEDED).result()));
  }
}
