package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import io.rdq.v1.ClaimedTask;
import io.rdq.v1.WorkResponse;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Who holds a task, for how long, and what happens to who does not any more. */
class ClaimScenariosTest extends Scenario {
  private String enqueue(String handlerRef) {
    return producer.enqueue(NewTask.of(QUEUE, handlerRef, "")).id();
  }

  @Test
  void leaseExtended() {
    // Leases do lapse on a machine that stands still for longer; then there is nothing to see.
    boolean isSeen = false;
    for (int i = 0; i < 10 && !isSeen; i++) {
      isSeen = isKeptFromRivals("kept-" + i, Duration.ofSeconds(4));
    }
    assertTrue(isSeen, "the machine stood still ten times");
  }

  /** Whether a long handler was watched, without a gap, to keep its task. */
  private boolean isKeptFromRivals(String queue, Duration lease) {
    ManagedChannel rival = channel();
    AtomicInteger runs = new AtomicInteger();
    CountDownLatch started = new CountDownLatch(1);
    CountDownLatch ends = new CountDownLatch(1);
    Worker worker =
        start(
            client
                .worker(queue)
                .lease(lease)
                .concurrency(1)
                .handler(
                    "long",
                    claim -> {
                      runs.incrementAndGet();
                      started.countDown();
                      ends.await();
                      return "once";
                    }));
    String id = producer.enqueue(NewTask.of(queue, "long", "")).id();
    await(started);
    Instant first = operator.get(id).leaseExpiresAt().orElseThrow();

    List<ClaimedTask> stolen = new ArrayList<>();
    long[] lookedNanos = {System.nanoTime(), 0};
    awaitThat(
        "the lease is extended three times over",
        () -> {
          claim(rival, queue, lease).ifPresent(stolen::add);
          long now = System.nanoTime();
          lookedNanos[1] = Math.max(lookedNanos[1], now - lookedNanos[0]);
          lookedNanos[0] = now;
          Instant end = operator.get(id).leaseExpiresAt().orElse(Instant.MAX);
          return end.isAfter(first.plus(lease.multipliedBy(3))) || !stolen.isEmpty();
        });
    if (!stolen.isEmpty() && lookedNanos[1] > lease.toNanos() / 4) {
      worker.stop();
      return false;
    }
    ends.countDown();

    assertEquals(List.of(), stolen);
    Task task = await(id, TaskStatus.SUCCEEDED);
    assertEquals("once", text(task.result()));
    assertEquals(1, runs.get());
    assertEquals(1, task.attempts().size());
    return true;
  }

  @Test
  void leaseLostMidHandler() {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    RdqClient behind = connect(proxy.address());
    ManagedChannel rival = channel();
    CountDownLatch started = new CountDownLatch(1);
    CompletableFuture<CancelReason> reason = new CompletableFuture<>();
    CompletableFuture<Boolean> interrupted = new CompletableFuture<>();
    start(
        behind
            .worker(QUEUE)
            .lease(Duration.ofSeconds(1))
            .concurrency(1) // so that it has no credit open, by which it would get the task itself
            .handler(
                "send",
                claim -> {
                  claim.cancellation().thenAccept(reason::complete);
                  started.countDown();
                  try {
                    blockUntilStopped();
                  } catch (InterruptedException stopped) {
                    interrupted.complete(claim.isCancelled());
                  }
                  return "the slower worker's";
                }));
    String id = enqueue("send");
    await(started);
    proxy.holdUp(true);
    proxy.holdDown(true);

    ClaimedTask taken =
        await("the lease runs out", () -> claim(rival, QUEUE, Duration.ofMinutes(10)));
    proxy.holdUp(false);
    proxy.holdDown(false);

    assertEquals(CancelReason.LOST, reason.join());
    assertTrue(interrupted.join());
    // Its handler ended, and what it returned changed nothing.
    assertEquals("rival", operator.get(id).claimedBy());
    complete(rival, taken, "the rival's");
    Task task = operator.get(id);
    assertEquals(TaskStatus.SUCCEEDED, task.status());
    assertEquals("the rival's", text(task.result()));
    assertEquals(2, task.attempts().size());
    assertEquals(AttemptOutcome.LEASE_EXPIRED, task.attempts().get(0).outcome());
    assertEquals("rival", task.attempts().get(1).workerId());
  }

  @Test
  void leaseAllButGone() {
    // The proxy has the first claim come late: 19 of its 20 seconds are over.
    AtomicBoolean isFirst = new AtomicBoolean(true);
    GrpcProxy.Rules late =
        new GrpcProxy.Rules() {
          @Override
          public byte[] answer(String method, byte[] message) {
            try {
              WorkResponse response =
                  method.equals("Work") ? WorkResponse.parseFrom(message) : null;
              if (response == null || response.getTasksCount() == 0 || !isFirst.getAndSet(false)) {
                return message;
              }
              WorkResponse.Builder changed = response.toBuilder();
              changed.getTasksBuilder(0).setLeaseRemaining(Times.proto(Duration.ofSeconds(1)));
              return changed.build().toByteArray();
            } catch (com.google.protobuf.InvalidProtocolBufferException error) {
              throw new UncheckedIOException(error);
            }
          }
        };
    GrpcProxy proxy = open(new GrpcProxy(server, late));
    RdqClient behind = connect(proxy.address());
    BlockingQueue<Claim> claims = new LinkedBlockingQueue<>();
    start(
        behind
            .worker(QUEUE)
            .lease(Duration.ofSeconds(20))
            .handler(
                "send",
                claim -> {
                  claims.add(claim);
                  return null;
                }));

    Task task = await(enqueue("send"), TaskStatus.SUCCEEDED);

    assertFalse(isFirst.get());
    assertEquals(1, claims.size());
    assertEquals(
        2, claims.element().generation(), "the second claim, after the first was released");
    assertEquals(1, claims.element().attemptNumber());
    assertEquals(1, task.attempts().size());
  }

  @Test
  void cancelMidHandler() {
    CountDownLatch started = new CountDownLatch(1);
    CompletableFuture<Optional<CancelReason>> reason = new CompletableFuture<>();
    start(
        client
            .worker(QUEUE)
            .handler(
                "send",
                claim -> {
                  started.countDown();
                  try {
                    blockUntilStopped();
                  } finally {
                    reason.complete(claim.cancelReason());
                  }
                  return null;
                })
            .handler("next", claim -> Thread.currentThread().isInterrupted()));
    String id = enqueue("send");
    await(started);

    Cancellation cancellation = operator.cancel(id);

    assertTrue(cancellation.cancelled());
    assertEquals(TaskStatus.CANCELLED, cancellation.status());
    assertEquals(Optional.of(CancelReason.CANCELLED), reason.join());
    Task task = operator.get(id);
    assertEquals(TaskStatus.CANCELLED, task.status());
    assertEquals(AttemptOutcome.CANCELLED, task.attempts().get(0).outcome());
    assertFalse(operator.cancel(id).cancelled());
  }

  @Test
  void redelivery() throws Exception {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    RdqClient behind = connect(proxy.address());
    BlockingQueue<Claim> claims = new LinkedBlockingQueue<>();
    CountDownLatch firstEnds = new CountDownLatch(1);
    CountDownLatch secondEnds = new CountDownLatch(1);
    CountDownLatch firstEnded = new CountDownLatch(1);
    start(
        behind
            .worker(QUEUE)
            .concurrency(2)
            .lease(Duration.ofSeconds(1))
            .handler(
                "send",
                claim -> {
                  claims.add(claim);
                  if (claim.attemptNumber() > 1) {
                    secondEnds.await();
                    return "attempt " + claim.attemptNumber();
                  }
                  boolean isOver = false;
                  while (!isOver) {
                    try {
                      firstEnds.await();
                      isOver = true;
                    } catch (InterruptedException ignored) {
                      // As handlers do that cannot stop in the middle.
                    }
                  }
                  firstEnded.countDown();
                  return "the first attempt";
                }));
    String id = enqueue("send");
    Claim first = claims.take();
    proxy.holdUp(true); // no heartbeat gets through, but claims do

    Claim second = claims.take();
    proxy.holdUp(false);

    assertEquals(id, second.id());
    assertEquals(2, second.attemptNumber());
    assertTrue(second.generation() > first.generation());
    awaitThat("the first is stopped", first::isCancelled);
    assertEquals(Optional.of(CancelReason.LOST), first.cancelReason());
    firstEnds.countDown();
    await(firstEnded);
    secondEnds.countDown();
    Task task = await(id, TaskStatus.SUCCEEDED);
    assertTrue(text(task.result()).startsWith("attempt "), text(task.result()));
    List<Attempt> attempts = task.attempts();
    assertEquals(AttemptOutcome.LEASE_EXPIRED, attempts.get(0).outcome());
    assertEquals(AttemptOutcome.SUCCESS, attempts.get(attempts.size() - 1).outcome());
  }

  @Test
  void boundedConcurrency() {
    int concurrency = 4;
    AtomicInteger running = new AtomicInteger();
    AtomicInteger most = new AtomicInteger();
    CountDownLatch full = new CountDownLatch(concurrency);
    List<NewTask> tasks = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      tasks.add(NewTask.of(QUEUE, "count", ""));
    }
    producer.enqueueMany(tasks).forEach(EnqueueResult::orThrow);
    start(
        client
            .worker(QUEUE)
            .concurrency(concurrency)
            .handler(
                "count",
                claim -> {
                  most.accumulateAndGet(running.incrementAndGet(), Math::max);
                  full.countDown();
                  full.await(); // so many do run at once
                  running.decrementAndGet();
                  return null;
                }));

    awaitThat(
        "all succeeded",
        () -> {
          QueueStats stats = operator.stats(QUEUE).get(0);
          assertTrue(stats.inFlight() <= concurrency, "in flight: " + stats.inFlight());
          return stats.succeeded() == 50;
        });
    assertEquals(concurrency, most.get());
  }
}
