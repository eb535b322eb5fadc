package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.rdq.v1.ClaimedTask;
import io.rdq.v1.GetCapabilitiesRequest;
import io.rdq.v1.GetCapabilitiesResponse;
import io.rdq.v1.TaskServiceGrpc;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** How workers end, and how they live through what happens to servers. */
class LifecycleScenariosTest extends Scenario {
  private String enqueue(String handlerRef) {
    return producer.enqueue(NewTask.of(QUEUE, handlerRef, "")).id();
  }

  @Test
  void drain() {
    drains(client, Worker.Receiving.WORK);
  }

  private void drains(RdqClient by, Worker.Receiving receiving) {
    CountDownLatch started = new CountDownLatch(2);
    CountDownLatch ends = new CountDownLatch(1);
    Worker worker =
        open(
            by.worker(QUEUE)
                .concurrency(2)
                .lease(Duration.ofSeconds(6))
                .receiving(receiving)
                .handler(
                    "drained",
                    claim -> {
                      started.countDown();
                      ends.await();
                      return "ended";
                    })
                .start());
    List<String> running = List.of(enqueue("drained"), enqueue("drained"));
    await(started);
    List<String> waiting = List.of(enqueue("drained"), enqueue("drained"), enqueue("drained"));

    worker.stopAsync();
    Instant before = operator.get(running.get(0)).leaseExpiresAt().orElseThrow();
    awaitThat(
        "leases are extended while handlers end",
        () -> operator.get(running.get(0)).leaseExpiresAt().orElseThrow().isAfter(before));
    ends.countDown();
    worker.awaitStopped();

    for (String id : running) {
      Task task = operator.get(id);
      assertEquals(TaskStatus.SUCCEEDED, task.status());
      assertEquals("ended", text(task.result()));
      assertEquals(1, task.attempts().size());
    }
    for (String id : waiting) {
      Task task = operator.get(id);
      assertEquals(TaskStatus.PENDING, task.status());
      assertEquals(0, task.attempts().size());
    }
  }

  @Test
  void drainGraceOver() {
    CountDownLatch started = new CountDownLatch(1);
    CompletableFuture<Optional<CancelReason>> reason = new CompletableFuture<>();
    Worker worker =
        open(
            client
                .worker(QUEUE)
                .grace(Duration.ofMillis(200))
                .handler(
                    "endless",
                    claim -> {
                      started.countDown();
                      try {
                        blockUntilStopped();
                      } finally {
                        reason.complete(claim.cancelReason());
                      }
                      return null;
                    })
                .start());
    String id = enqueue("endless");
    await(started);

    worker.stop();

    assertEquals(Optional.of(CancelReason.SHUTDOWN), reason.join());
    Task task = operator.get(id);
    assertEquals(TaskStatus.PENDING, task.status());
    assertEquals(0, task.attemptCount());
    assertEquals(0, task.attempts().size());
    ManagedChannel next = channel();
    ClaimedTask claimed = claim(next, QUEUE, Duration.ofMinutes(1)).orElseThrow();
    assertEquals(id, claimed.getTask().getId());
    assertEquals(1, claimed.getAttemptNo());
  }

  @Test
  void aSuccessAfterTheGraceCountsAndAHandlerThatIgnoresItsStopIsGivenBack() {
    CountDownLatch started = new CountDownLatch(2);
    CountDownLatch ends = new CountDownLatch(1);
    open(ends::countDown);
    Worker worker =
        open(
            client
                .worker(QUEUE)
                .grace(Duration.ZERO)
                .handler(
                    "succeeds",
                    claim -> {
                      started.countDown();
                      try {
                        blockUntilStopped();
                      } catch (InterruptedException stopped) {
                        return "just so";
                      }
                      return null;
                    })
                .handler(
                    "ignores",
                    claim -> {
                      started.countDown();
                      while (ends.getCount() > 0) {
                        try {
                          ends.await();
                        } catch (InterruptedException ignored) {
                          // As it should not be.
                        }
                      }
                      return "too late";
                    })
                .start());
    String succeeds = enqueue("succeeds");
    String ignores = enqueue("ignores");
    await(started);

    worker.stop();

    assertEquals("just so", text(operator.get(succeeds).result()));
    Task given = operator.get(ignores);
    assertEquals(TaskStatus.PENDING, given.status());
    assertEquals(0, given.attempts().size());
  }

  @Test
  void aServerThatDrainsKeepsTheOutcomesOfWhatRuns() {
    CountDownLatch started = new CountDownLatch(1);
    CountDownLatch ends = new CountDownLatch(1);
    Worker worker =
        start(
            client
                .worker(QUEUE)
                .handler(
                    "held",
                    claim -> {
                      started.countDown();
                      ends.await();
                      return "ended";
                    }));
    String id = enqueue("held");
    await(started);

    server.terminate();
    ends.countDown();
    server.awaitEnd();
    worker.stop();
    server.restart();

    Task task = operator.get(id);
    assertEquals(TaskStatus.SUCCEEDED, task.status());
    assertEquals("ended", text(task.result()));
    assertEquals(1, task.attempts().size());
  }

  @Test
  void aWorkerWithNothingToWaitForStopsWithoutItsServer() {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    CountDownLatch started = new CountDownLatch(1);
    CountDownLatch stopped = new CountDownLatch(1);
    Worker worker =
        connect(proxy.address())
            .worker(QUEUE)
            .grace(Duration.ofHours(1))
            .handler(
                "waits",
                claim -> {
                  started.countDown();
                  try {
                    blockUntilStopped();
                  } finally {
                    stopped.countDown();
                  }
                  return "";
                })
            .start();
    String id = enqueue("waits");
    await(started);
    // Of a task that is cancelled there is no outcome whose answer could be lost.
    operator.cancel(id);
    await(stopped);
    proxy.holdUp(true);
    proxy.holdDown(true);

    worker.stop();
  }

  @Test
  void otherContractVersion() {
    assertEquals(
        OtherContractVersionException.CLIENT_VERSION,
        TaskServiceGrpc.newBlockingStub(channel())
            .getCapabilities(GetCapabilitiesRequest.getDefaultInstance())
            .getContractVersion());
    List<String> called = Collections.synchronizedList(new ArrayList<>());
    GrpcProxy.Rules foreign =
        new GrpcProxy.Rules() {
          @Override
          public void admit(String method) {
            called.add(method);
          }

          @Override
          public byte[] answer(String method, byte[] message) {
            return method.equals("GetCapabilities")
                ? GetCapabilitiesResponse.newBuilder()
                    .setContractVersion("2.7")
                    .build()
                    .toByteArray()
                : message;
          }
        };
    RdqClient abroad = connect(open(new GrpcProxy(server, foreign)).address());
    // A producer asks for nothing but what it wants.
    String id = abroad.producer().enqueue(NewTask.of(QUEUE, "any", "")).id();
    assertEquals(List.of("Enqueue"), called);

    Worker worker = start(abroad.worker(QUEUE).handler("any", claim -> null));
    OtherContractVersionException refusal =
        assertThrows(OtherContractVersionException.class, worker::awaitStopped);

    assertEquals("2.7", refusal.serverVersion());
    assertEquals("OTHER_CONTRACT_VERSION", refusal.reason());
    String message = refusal.getMessage();
    assertTrue(message.contains("\"2.7\""), message);
    assertTrue(message.contains(OtherContractVersionException.CLIENT_VERSION), message);
    assertEquals(List.of("Enqueue", "GetCapabilities"), called, "nothing was claimed");
    assertEquals(TaskStatus.PENDING, operator.get(id).status());
  }

  @Test
  void serverRestart() {
    AtomicInteger runs = new AtomicInteger();
    CountDownLatch started = new CountDownLatch(4);
    CountDownLatch someEnd = new CountDownLatch(1);
    CountDownLatch allEnd = new CountDownLatch(1);
    start(
        client
            .worker(QUEUE)
            .concurrency(4)
            .handler(
                "held",
                claim -> {
                  boolean isSome = runs.incrementAndGet() <= 2;
                  started.countDown();
                  (isSome ? someEnd : allEnd).await();
                  return "ended";
                }));
    List<String> ids = new ArrayList<>();
    for (int i = 0; i < 10; i++) {
      ids.add(enqueue("held"));
    }
    await(started);

    server.kill();
    someEnd.countDown(); // their outcomes find no server
    server.restart();
    allEnd.countDown();

    for (String id : ids) {
      Task task = await(id, TaskStatus.SUCCEEDED);
      assertEquals("ended", text(task.result()));
      assertEquals(1, task.attempts().size());
    }
    assertEquals(10, runs.get());
  }

  @Test
  void outcomesWhoseAnswersAreLostAreSentAgain() {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    RdqClient behind = connect(proxy.address());
    BlockingQueue<CountDownLatch> running = new LinkedBlockingQueue<>();
    start(
        behind
            .worker(QUEUE)
            .concurrency(1)
            .handler(
                "held",
                claim -> {
                  CountDownLatch ends = new CountDownLatch(1);
                  running.add(ends);
                  ends.await();
                  return "ended";
                }));

    String answerLost = enqueue("held");
    CountDownLatch ends = await("it runs", () -> Optional.ofNullable(running.poll()));
    proxy.holdDown(true);
    ends.countDown();
    await(answerLost, TaskStatus.SUCCEEDED);
    proxy.cut();
    proxy.holdDown(false);

    // The worker's one place is free again once it has the answer.
    String outcomeLost = enqueue("held");
    ends = await("the next runs", () -> Optional.ofNullable(running.poll()));
    proxy.holdUp(true);
    ends.countDown();
    proxy.cut();
    proxy.holdUp(false);

    Task task = await(outcomeLost, TaskStatus.SUCCEEDED);
    assertEquals(1, task.attempts().size());
    assertEquals(1, operator.get(answerLost).attempts().size());
  }

  @Test
  void anOutcomeOutlivesCallsThatFail() {
    for (Map.Entry<Status.Code, String> refusal :
        Map.of(
                Status.Code.INTERNAL, "INTERNAL",
                Status.Code.UNAUTHENTICATED, "UNAUTHENTICATED",
                Status.Code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
            .entrySet()) {
      AtomicInteger calls = new AtomicInteger();
      GrpcProxy.Rules refuses =
          new GrpcProxy.Rules() {
            @Override
            public void admit(String method) {
              if (method.equals("ResolveBatch") && calls.incrementAndGet() == 1) {
                throw ErrorsTest.status(refusal.getKey(), "rdq", refusal.getValue(), Map.of());
              }
            }
          };
      GrpcProxy proxy = open(new GrpcProxy(server, refuses));
      String queue = "after " + refusal.getValue();
      start(
          connect(proxy.address())
              .worker(queue)
              .receiving(Worker.Receiving.CLAIM_DUE)
              .handler("echo", Claim::payload));

      String id = producer.enqueue(NewTask.of(queue, "echo", "kept")).id();

      Task task = await(id, TaskStatus.SUCCEEDED);
      assertEquals("kept", text(task.result()));
      assertEquals(1, task.attempts().size());
      assertTrue(calls.get() > 1);
    }
  }

  @Test
  void progressThatIsNotStoredAtOnceDoesNotHoldAFailureForLong() {
    AtomicInteger extensions = new AtomicInteger();
    GrpcProxy.Rules refuses =
        new GrpcProxy.Rules() {
          @Override
          public void admit(String method) {
            if (method.equals("ExtendLeases") && extensions.incrementAndGet() <= 3) {
              throw Status.UNAVAILABLE.asRuntimeException();
            }
          }
        };
    GrpcProxy proxy = open(new GrpcProxy(server, refuses));
    operator.putQueue("once", QueueConfig.builder().maxAttempts(1).build());
    start(
        connect(proxy.address())
            .worker("once")
            // A tenth of it is longer than a test looks for anything.
            .lease(Duration.ofHours(2))
            .receiving(Worker.Receiving.CLAIM_DUE)
            .handler(
                "fails",
                claim -> {
                  claim.progress("half".getBytes());
                  throw new IllegalStateException("half way");
                }));

    String id = producer.enqueue(NewTask.of("once", "fails", "")).id();

    assertEquals("half", text(await(id, TaskStatus.DEAD).progress()));
    assertEquals(4, extensions.get());
  }

  @Test
  void claimDueFallback() throws Exception {
    BlockingQueue<String> refused = new LinkedBlockingQueue<>();
    GrpcProxy.Rules older =
        new GrpcProxy.Rules() {
          @Override
          public void admit(String method) {
            if (method.equals("Work")) {
              refused.add(method);
              throw Status.UNIMPLEMENTED.withDescription("no such method").asRuntimeException();
            }
          }
        };
    GrpcProxy proxy = open(new GrpcProxy(server, older));
    RdqClient behind = connect(proxy.address());
    operator.putQueue("once", QueueConfig.builder().maxAttempts(1).build());
    CountDownLatch started = new CountDownLatch(1);
    CompletableFuture<Optional<CancelReason>> reason = new CompletableFuture<>();
    Worker worker =
        start(
            behind
                .worker("once")
                .lease(Duration.ofSeconds(4))
                .concurrency(3)
                .handler("echo", Claim::payload)
                .handler(
                    "fails",
                    claim -> {
                      throw new IllegalStateException("as it should");
                    })
                .handler(
                    "waits",
                    claim -> {
                      started.countDown();
                      try {
                        blockUntilStopped();
                      } finally {
                        reason.complete(claim.cancelReason());
                      }
                      return null;
                    }));

    List<String> echoed = new ArrayList<>();
    for (int i = 0; i < 10; i++) {
      echoed.add(producer.enqueue(NewTask.of("once", "echo", "e" + i)).id());
    }
    for (int i = 0; i < 10; i++) {
      assertEquals("e" + i, text(await(echoed.get(i), TaskStatus.SUCCEEDED).result()));
    }
    Task failed = await(producer.enqueue(NewTask.of("once", "fails", "")).id(), TaskStatus.DEAD);
    assertEquals("as it should", failed.attempts().get(0).error().orElseThrow().message());
    String cancelled = producer.enqueue(NewTask.of("once", "waits", "")).id();
    await(started);
    assertTrue(operator.cancel(cancelled).cancelled());
    assertEquals(Optional.of(CancelReason.CANCELLED), reason.join());
    worker.stop();
    assertEquals(1, refused.size(), "asked once, not again");
    drains(behind, Worker.Receiving.AUTOMATIC);
    assertEquals(2, refused.size());
  }
}
