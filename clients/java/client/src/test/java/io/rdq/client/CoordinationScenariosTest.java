package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.protobuf.ByteString;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.rdq.v1.ClaimBatchRequest;
import io.rdq.v1.CommitRequest;
import io.rdq.v1.CompareAndSetRequest;
import io.rdq.v1.CountUnprojectedRequest;
import io.rdq.v1.EnqueueRequest;
import io.rdq.v1.GetLockRequest;
import io.rdq.v1.GetLockResponse;
import io.rdq.v1.GetOffsetRequest;
import io.rdq.v1.GetRecordRequest;
import io.rdq.v1.LockServiceGrpc;
import io.rdq.v1.LockServiceReleaseRequest;
import io.rdq.v1.Operation;
import io.rdq.v1.OutboxMessage;
import io.rdq.v1.OutboxServiceEnqueueRequest;
import io.rdq.v1.OutboxServiceGrpc;
import io.rdq.v1.PublishRequest;
import io.rdq.v1.ReadRequest;
import io.rdq.v1.Record;
import io.rdq.v1.RecordServiceGrpc;
import io.rdq.v1.ReleaseWithErrorRequest;
import io.rdq.v1.StreamEvent;
import io.rdq.v1.StreamServiceGrpc;
import io.rdq.v1.TransactionServiceGrpc;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Events, locks, outboxes and transactions. */
class CoordinationScenariosTest extends Scenario {
  private static final Duration LONG = Duration.ofHours(1);

  private long publish(String... payloads) {
    long offset = 0;
    for (String payload : payloads) {
      PublishRequest request =
          PublishRequest.newBuilder()
              .setStream("events")
              .setPayload(ByteString.copyFromUtf8(payload))
              .build();
      // After a restart the connection may not be there yet.
      offset =
          client
              .stub(StreamServiceGrpc::newBlockingStub)
              .withWaitForReady()
              .publish(request)
              .getOffset();
    }
    return offset;
  }

  private long savedOffset() {
    return client
        .stub(StreamServiceGrpc::newBlockingStub)
        .withWaitForReady()
        .getOffset(GetOffsetRequest.newBuilder().setStream("events").setConsumer("reader").build())
        .getOffset();
  }

  private Subscription subscribe(EventHandler handler) {
    return open(
        client.subscription("events", "reader").eventsPerMessage(2).handler(handler).start());
  }

  private static <T> T take(String what, BlockingQueue<T> from) {
    return await(what, () -> Optional.ofNullable(from.poll()));
  }

  private static void takes(BlockingQueue<String> events, String... payloads) {
    for (String payload : payloads) {
      assertEquals(payload, take(payload + " comes", events));
    }
  }

  @Test
  void subscription() throws Exception {
    BlockingQueue<String> events = new LinkedBlockingQueue<>();
    EventHandler handler = event -> events.add(event.getPayload().toStringUtf8());
    publish("1", "2", "3");
    Subscription first = subscribe(handler);
    takes(events, "1", "2", "3");
    long fifth = publish("4", "5");
    takes(events, "4", "5");
    awaitThat("the offset is saved", () -> savedOffset() == fifth);

    server.kill();
    server.restart();
    long seventh = publish("6", "7");
    takes(events, "6", "7");
    first.stop();
    first.awaitStopped();
    assertEquals(seventh, savedOffset());

    long eighth = publish("8");
    publish("9", "10");
    IllegalStateException failure = new IllegalStateException("the handler failed");
    Subscription second =
        subscribe(
            event -> {
              if (event.getPayload().toStringUtf8().equals("9")) {
                throw failure;
              }
              handler.handle(event);
            });
    takes(events, "8");
    assertSame(failure, assertThrows(ExecutionException.class, second::awaitStopped).getCause());
    assertEquals(eighth, savedOffset());
    Subscription third = subscribe(handler);
    takes(events, "9", "10");
    third.stop();
    third.awaitStopped();
    assertTrue(events.isEmpty(), events.toString());

    Subscription refused = open(client.subscription(" ", "reader").handler(handler).start());
    assertThrows(InvalidNameException.class, refused::awaitStopped);
  }

  private GetLockResponse held(String name) {
    return client
        .stub(LockServiceGrpc::newBlockingStub)
        .withWaitForReady()
        .getLock(GetLockRequest.newBuilder().setName(name).build());
  }

  @Test
  void lockGuard() throws Exception {
    Duration ttl = Duration.ofSeconds(4);
    LockGuard first = open(client.lock("lock").ttl(ttl).acquire());
    assertThrows(LockHeldException.class, () -> client.lock("lock").acquire());
    BlockingQueue<LockLostException> told = new LinkedBlockingQueue<>();
    BlockingQueue<Boolean> interrupted = new LinkedBlockingQueue<>();
    CompletableFuture<LockGuard> waiting = new CompletableFuture<>();
    Thread holder =
        new Thread(
            () -> {
              try (LockGuard second =
                  client.lock("lock").ttl(ttl).waiting(LONG).onLost(told::add).acquire()) {
                waiting.complete(second);
                blockUntilStopped();
              } catch (InterruptedException stopped) {
                interrupted.add(true);
              } catch (RuntimeException error) {
                waiting.completeExceptionally(error);
              }
            });
    holder.setDaemon(true);
    holder.start();

    long begin = held("lock").getExpiresAt().getSeconds();
    awaitThat(
        "it is renewed for several ttls",
        () -> held("lock").getExpiresAt().getSeconds() - begin > 2 * ttl.toSeconds());
    assertEquals(first.owner(), held("lock").getOwner());
    assertEquals(first.generation(), held("lock").getGeneration());
    assertFalse(first.isLost());
    assertFalse(waiting.isDone());
    first.close();
    first.close();
    assertFalse(first.isLost());
    awaitThat("the one that waits has it", waiting::isDone);
    LockGuard second = waiting.get();
    assertTrue(second.generation() > first.generation());
    assertEquals("lock", second.name());

    server.kill();
    LockLostException lost = take("the holder is told", told);
    assertInstanceOf(RdqException.class, lost.getCause());
    assertTrue(take("the holder's thread is interrupted", interrupted));
    assertTrue(second.isLost());
    assertSame(lost, assertThrows(LockLostException.class, second::throwIfLost));
    holder.join();
    server.restart();
    try (LockGuard third = client.lock("lock").waiting(LONG).acquire()) {
      assertTrue(third.generation() > second.generation());
    }
    assertFalse(held("lock").getHeld());
  }

  @Test
  void aLockThatIsTakenAwayIsLost() throws Exception {
    BlockingQueue<LockLostException> told = new LinkedBlockingQueue<>();
    Duration ttl = Duration.ofSeconds(3);
    LockGuard guard =
        open(
            client
                .lock("lock")
                .ttl(ttl)
                .owner("me")
                .onLost(told::add)
                .withoutInterrupt()
                .acquire());
    client
        .stub(LockServiceGrpc::newBlockingStub)
        .release(LockServiceReleaseRequest.newBuilder().setName("lock").setOwner("me").build());
    take("the holder is told", told);
    assertTrue(guard.isLost());
    assertFalse(Thread.currentThread().isInterrupted());
  }

  @Test
  void aLockOutOfReachIsLostAndOneThatMayBeHeldIsGivenBack() throws Exception {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    RdqClient behind = connect(proxy.address());
    BlockingQueue<LockLostException> told = new LinkedBlockingQueue<>();
    Duration ttl = Duration.ofSeconds(3);
    open(behind.lock("lock").ttl(ttl).onLost(told::add).withoutInterrupt().acquire());
    proxy.holdUp(true);
    proxy.holdDown(true);
    take("the holder is told", told);

    proxy.cut();
    proxy.holdUp(false);
    proxy.holdDown(false);
    awaitThat(
        "there is a connection again",
        () -> {
          try {
            return behind.operator().stats().isEmpty();
          } catch (RdqException stillClosing) {
            return false;
          }
        });
    proxy.holdDown(true);
    CompletableFuture<Throwable> ended = new CompletableFuture<>();
    Thread tries =
        new Thread(
            () -> {
              try {
                behind.lock("other").ttl(LONG).acquire();
                ended.complete(null);
              } catch (Throwable thrown) {
                ended.complete(thrown);
              }
            });
    tries.setDaemon(true);
    tries.start();
    awaitThat("it is acquired", () -> held("other").getHeld());
    tries.interrupt();
    awaitThat("the call ends", ended::isDone);
    assertInstanceOf(RdqException.class, ended.get());
    awaitThat("it is released", () -> !held("other").getHeld());
  }

  private void put(String payload) {
    client
        .stub(OutboxServiceGrpc::newBlockingStub)
        .enqueue(
            OutboxServiceEnqueueRequest.newBuilder()
                .setOutbox("mail")
                .setPayload(ByteString.copyFromUtf8(payload))
                .build());
  }

  private long unprojected() {
    return client
        .stub(OutboxServiceGrpc::newBlockingStub)
        .countUnprojected(CountUnprojectedRequest.newBuilder().setOutbox("mail").build())
        .getCounts(0)
        .getUnprojected();
  }

  private Optional<OutboxMessage> claimAsRival() {
    return client
        .stub(OutboxServiceGrpc::newBlockingStub)
        .claimBatch(
            ClaimBatchRequest.newBuilder().setWorkerId("rival").setLease(Times.proto(LONG)).build())
        .getMessagesList()
        .stream()
        .findFirst();
  }

  @Test
  void outboxRelay() throws Exception {
    OutboxRelay relay = client.outboxRelay().outbox("mail").build();
    OutboxDelivery never = message -> fail("delivered again: " + message);
    assertFalse(relay.runOnce("me", never));
    put("one");
    List<String> delivered = new ArrayList<>();
    assertTrue(relay.runOnce("me", message -> delivered.add(message.getPayload().toStringUtf8())));
    assertEquals(List.of("one"), delivered);
    assertEquals(0, unprojected());
    assertFalse(relay.runOnce("me", never));

    put("two");
    assertTrue(
        relay.runOnce(
            "me",
            message -> {
              throw new IllegalStateException("not now");
            }));
    BlockingQueue<OutboxMessage> again = new LinkedBlockingQueue<>();
    CompletableFuture<Throwable> ended = new CompletableFuture<>();
    Thread loop =
        new Thread(
            () -> {
              try {
                relay.run("me", again::add);
                ended.complete(null);
              } catch (Throwable thrown) {
                ended.complete(thrown);
              }
            });
    loop.setDaemon(true);
    loop.start();
    OutboxMessage second = take("it comes again", again);
    assertEquals("two", second.getPayload().toStringUtf8());
    assertEquals(2, second.getAttemptCount());
    assertEquals("java.lang.IllegalStateException: not now", second.getLastError());
    awaitThat("it is projected", () -> unprojected() == 0);
    relay.stop();
    awaitThat("the loop stops", ended::isDone);
    assertNull(ended.get());
    put("three");
    assertTrue(again.isEmpty(), again.toString());

    // One whose claim ends while it is delivered is another's, and that is no error.
    OutboxRelay hasty = client.outboxRelay().lease(Duration.ofMillis(10)).build();
    for (boolean fails : new boolean[] {false, true}) {
      AtomicReference<OutboxMessage> rival = new AtomicReference<>();
      assertTrue(
          hasty.runOnce(
              "me",
              message -> {
                rival.set(await("another claims it", this::claimAsRival));
                if (fails) {
                  throw new IllegalStateException("too late");
                }
              }));
      client
          .stub(OutboxServiceGrpc::newBlockingStub)
          .releaseWithError(
              ReleaseWithErrorRequest.newBuilder()
                  .setId(rival.get().getId())
                  .setWorkerId("rival")
                  .setGeneration(rival.get().getGeneration())
                  .build());
    }

    // One that is broken off is due at once.
    OutboxRelay patient = client.outboxRelay().outbox("mail").lease(LONG).build();
    assertThrows(
        InterruptedException.class,
        () ->
            patient.runOnce(
                "me",
                message -> {
                  Thread.currentThread().interrupt();
                  blockUntilStopped();
                }));
    OutboxMessage third = await("it is given back", this::claimAsRival);
    assertEquals("three", third.getPayload().toStringUtf8());
    assertEquals("the delivery was broken off", third.getLastError());
  }

  private void commit(String id) {
    Operation publish =
        Operation.newBuilder()
            .setPublish(
                PublishRequest.newBuilder()
                    .setStream("events")
                    .setPayload(ByteString.copyFromUtf8(id)))
            .build();
    Operation enqueue =
        Operation.newBuilder()
            .setEnqueue(
                EnqueueRequest.newBuilder()
                    .setTask(
                        io.rdq.v1.Task.newBuilder()
                            .setId(id)
                            .setQueue(QUEUE)
                            .setHandlerRef("send")))
            .build();
    Operation set =
        Operation.newBuilder()
            .setCompareAndSet(
                CompareAndSetRequest.newBuilder()
                    .setKey("record")
                    .setValue(ByteString.copyFromUtf8(id)))
            .build();
    client
        .stub(TransactionServiceGrpc::newBlockingStub)
        .commit(
            CommitRequest.newBuilder()
                .addOperations(publish)
                .addOperations(enqueue)
                .addOperations(set)
                .build());
  }

  private void onlyTheFirstIsThere() {
    List<StreamEvent> events =
        client
            .stub(StreamServiceGrpc::newBlockingStub)
            .read(ReadRequest.newBuilder().setStream("events").setOffset(0).build())
            .getEventsList();
    assertEquals(
        List.of("first"), events.stream().map(event -> event.getPayload().toStringUtf8()).toList());
    Record record =
        client
            .stub(RecordServiceGrpc::newBlockingStub)
            .getRecord(GetRecordRequest.newBuilder().setKey("record").build())
            .getRecord();
    assertEquals("first", record.getValue().toStringUtf8());
    assertEquals(1, record.getRevision());
  }

  @Test
  void commit() {
    commit("first");
    onlyTheFirstIsThere();
    assertEquals(TaskStatus.PENDING, operator.get("first").status());

    RdqException error =
        RdqException.of(assertThrows(StatusRuntimeException.class, () -> commit("second")));
    CasConflictException conflict = assertInstanceOf(CasConflictException.class, error);
    assertEquals("record", conflict.key());
    assertEquals(0, conflict.expectedRevision());
    assertEquals("2", conflict.metadata().get("operation_index"));
    assertFalse(conflict.isRetryable());
    onlyTheFirstIsThere();
    assertThrows(TaskNotFoundException.class, () -> operator.get("second"));
  }

  @Test
  void stubsHaveTheTimeoutOfTheClient() {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    Duration timeout = Duration.ofMillis(50);
    RdqClient behind = open(RdqClient.builder(proxy.address()).callTimeout(timeout).build());
    proxy.holdDown(true);
    StatusRuntimeException error =
        assertThrows(
            StatusRuntimeException.class,
            () ->
                behind
                    .stub(RecordServiceGrpc::newBlockingStub)
                    .getRecord(GetRecordRequest.newBuilder().setKey("k").build()));
    assertEquals(Status.Code.DEADLINE_EXCEEDED, error.getStatus().getCode());
  }
}
