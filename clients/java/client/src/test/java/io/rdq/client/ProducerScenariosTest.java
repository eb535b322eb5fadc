package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnknownFieldSet;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import org.junit.jupiter.api.Test;

/** What is enqueued, how often, and in which words. */
class ProducerScenariosTest extends Scenario {
  @Test
  void enqueueOptions() throws Exception {
    Instant dueAt = Instant.parse("2100-01-02T03:04:05.006Z");
    Instant expiresAt = Instant.parse("2101-01-02T03:04:05.006Z");
    producer.enqueue(
        NewTask.builder(QUEUE, "send")
            .id("all-options")
            .handlerVersion("v7")
            .payload(allBytes())
            .contentType("application/octet-stream")
            .header("one", "1")
            .headers(Map.of("two", "2", "three", "3"))
            .priority(-3)
            .dueAt(dueAt)
            .expiresAt(expiresAt)
            .maxAttempts(9)
            .lease(Duration.ofSeconds(77))
            .initialBackoff(Duration.ofMillis(1500))
            .retentionDead(Duration.ofHours(5))
            .build());
    Task all = operator.get("all-options");
    assertEquals("all-options", all.id());
    assertEquals(QUEUE, all.queue());
    assertEquals("send", all.handlerRef());
    assertEquals(Optional.of("v7"), all.handlerVersion());
    assertArrayEquals(allBytes(), all.payload());
    assertEquals("application/octet-stream", all.contentType());
    assertEquals(Map.of("one", "1", "two", "2", "three", "3"), all.headers());
    assertEquals(-3, all.priority());
    assertEquals(Optional.of(dueAt), all.nextAttemptAt());
    assertEquals(Optional.of(expiresAt), all.expiresAt());
    assertEquals(OptionalInt.of(9), all.maxAttempts());
    assertEquals(Optional.of(Duration.ofSeconds(77)), all.lease());
    assertEquals(Optional.of(Duration.ofMillis(1500)), all.initialBackoff());
    assertEquals(Optional.of(Duration.ofHours(5)), all.retentionDead());

    Admission delayed =
        producer.enqueue(
            NewTask.builder(QUEUE, "send")
                .delay(Duration.ofHours(1))
                .expiresIn(Duration.ofHours(2))
                .build());
    Task later = operator.get(delayed.id());
    Instant created = later.createdAt().orElseThrow();
    assertEquals(created.plus(Duration.ofHours(1)), later.nextAttemptAt().orElseThrow());
    assertEquals(created.plus(Duration.ofHours(2)), later.expiresAt().orElseThrow());

    for (int priority : new int[] {1, 3, 2}) {
      producer.enqueue(
          NewTask.builder(QUEUE, "note").priority(priority).payload("p" + priority).build());
    }
    BlockingQueue<Claim> order = new LinkedBlockingQueue<>();
    start(
        client
            .worker(QUEUE)
            .concurrency(1)
            .handler("note", claim -> order.add(claim) ? null : null));
    assertEquals("p3", text(order.take().payload()));
    assertEquals("p2", text(order.take().payload()));
    assertEquals("p1", text(order.take().payload()));
  }

  @Test
  void enqueueRepeated() {
    NewTask task = NewTask.builder(QUEUE, "send").id("once").payload("first").build();
    Admission first = producer.enqueue(task);
    Admission second =
        producer.enqueue(NewTask.builder(QUEUE, "send").id("once").payload("second").build());

    assertTrue(first.created());
    assertFalse(second.created());
    assertEquals("once", second.id());
    assertEquals(TaskStatus.PENDING, second.status());
    assertEquals("first", text(operator.get("once").payload()));
    NewTask elsewhere = NewTask.builder("other", "send").id("once").build();
    IdConflictException conflict =
        assertThrows(IdConflictException.class, () -> producer.enqueue(elsewhere));
    assertEquals("once", conflict.taskId());
  }

  @Test
  void enqueueAnswerLost() {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    RdqClient behind = connect(proxy.address());
    behind.operator().stats(); // connected
    proxy.holdDown(true);

    CompletableFuture<Admission> call =
        CompletableFuture.supplyAsync(
            () -> behind.producer().enqueue(NewTask.of(QUEUE, "send", "lost")));
    Task stored =
        await(
            "the first try is stored",
            () -> operator.list(TaskQuery.of(QUEUE)).stream().findFirst());
    assertFalse(call.isDone());
    proxy.cut();
    proxy.holdDown(false);

    Admission admission = call.join();
    assertEquals(stored.id(), admission.id());
    assertFalse(admission.created());
    assertEquals(1, operator.list(TaskQuery.of(QUEUE)).stream().count());
  }

  @Test
  void enqueueManyMixed() {
    List<NewTask> tasks = new ArrayList<>();
    for (int i = 0; i < 2_500; i++) {
      NewTask.Builder task = NewTask.builder(i % 100 == 7 ? "" : QUEUE, "send").id("t-" + i);
      if (i % 500 == 3) {
        task.payload(new byte[(1 << 20) + 1]);
      } else if (i % 10 == 1) {
        task.payload(new byte[10 << 10]);
      }
      tasks.add(task.build());
    }
    producer.enqueue(NewTask.builder("other", "send").id("t-42").build());

    List<EnqueueResult> results = producer.enqueueMany(tasks);

    assertEquals(2_500, results.size());
    int admitted = 0;
    for (int i = 0; i < 2_500; i++) {
      EnqueueResult result = results.get(i);
      assertEquals("t-" + i, result.id());
      if (i % 100 == 7) {
        assertInstanceOf(InvalidNameException.class, result.error().orElseThrow());
      } else if (i % 500 == 3) {
        assertInstanceOf(PayloadTooLargeException.class, result.error().orElseThrow());
      } else if (i == 42) {
        assertInstanceOf(IdConflictException.class, result.error().orElseThrow());
        assertThrows(IdConflictException.class, result::orThrow);
      } else {
        assertTrue(result.orThrow().created(), "task " + i);
        admitted++;
      }
    }
    assertEquals(admitted, operator.stats(QUEUE).get(0).pending());
  }

  @Test
  void unicodeAndBinary() {
    String strange = "🚀 ñ مرحبا \u202e עברית";
    String id = "id " + strange;
    operator.putQueue(strange, promptRetries().maxAttempts(1).build());
    start(
        client
            .worker(strange)
            .handler(
                strange,
                claim -> {
                  assertArrayEquals(allBytes(), claim.payload());
                  assertEquals(strange, claim.headers().get(strange));
                  throw new IllegalStateException(strange);
                }));
    producer.enqueue(
        NewTask.builder(strange, strange)
            .id(id)
            .payload(allBytes())
            .header(strange, strange)
            .contentType(strange)
            .build());

    Task dead = await(id, TaskStatus.DEAD);
    assertEquals(strange, dead.queue());
    assertEquals(strange, dead.handlerRef());
    assertEquals(strange, dead.contentType());
    assertEquals(Map.of(strange, strange), dead.headers());
    assertArrayEquals(allBytes(), dead.payload());
    AttemptError error = dead.attempts().get(0).error().orElseThrow();
    assertEquals("java.lang.IllegalStateException", error.type());
    assertEquals(strange, error.message());
    assertTrue(error.stack().contains(strange));
    TaskNotFoundException unknown =
        assertThrows(TaskNotFoundException.class, () -> operator.get(strange));
    assertEquals(strange, unknown.taskId());
  }

  @Test
  void hugePayload() {
    int limit = 2 << 20;
    operator.putQueue(QUEUE, QueueConfig.builder().maxPayloadBytes(limit).build());
    start(
        client
            .worker(QUEUE)
            .handler("length", claim -> claim.payload().length + " " + claim.payload()[limit - 1]));

    List<NewTask> tasks = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      byte[] payload = new byte[limit];
      Arrays.fill(payload, (byte) (i + 1));
      tasks.add(NewTask.of(QUEUE, "length", payload));
    }
    List<EnqueueResult> results = producer.enqueueMany(tasks);
    for (int i = 0; i < 4; i++) {
      Task task = await(results.get(i).orThrow().id(), TaskStatus.SUCCEEDED);
      assertEquals(limit + " " + (i + 1), text(task.result()));
    }

    NewTask tooLarge = NewTask.of(QUEUE, "length", new byte[limit + 1]);
    PayloadTooLargeException refusal =
        assertThrows(PayloadTooLargeException.class, () -> producer.enqueue(tooLarge));
    assertEquals(limit, refusal.limitBytes());
    assertEquals(limit + 1, refusal.sizeBytes());
    assertFalse(refusal.isRetryable());
  }

  @Test
  void unknownFields() throws Exception {
    UnknownFieldSet.Field text =
        UnknownFieldSet.Field.newBuilder()
            .addLengthDelimited(ByteString.copyFromUtf8("of a newer contract 🚀"))
            .build();
    UnknownFieldSet.Field number = UnknownFieldSet.Field.newBuilder().addVarint(-1).build();
    UnknownFieldSet unknown =
        UnknownFieldSet.newBuilder().addField(1000, text).addField(1001, number).build();
    NewTask task =
        NewTask.fromProto(
            io.rdq.v1.Task.newBuilder()
                .setId("newer")
                .setQueue(QUEUE)
                .setHandlerRef("send")
                .setUnknownFields(unknown)
                .build());
    BlockingQueue<Claim> claims = new LinkedBlockingQueue<>();
    operator.putQueue(QUEUE, promptRetries().maxAttempts(2).build());
    start(
        client
            .worker(QUEUE)
            .handler(
                "send",
                claim -> {
                  claims.add(claim);
                  if (claim.task().redriveCount() == 0) {
                    throw new IllegalStateException("until it is redriven");
                  }
                  return null;
                }));

    producer.enqueue(task);
    assertEquals(unknown, operator.get("newer").toProto().getUnknownFields());
    assertEquals(unknown, await("newer", TaskStatus.DEAD).toProto().getUnknownFields());
    assertEquals(1, operator.redrive(QUEUE, Selector.ids("newer")));
    assertEquals(unknown, await("newer", TaskStatus.SUCCEEDED).toProto().getUnknownFields());
    for (int i = 0; i < 3; i++) {
      assertEquals(unknown, claims.take().task().toProto().getUnknownFields());
    }
  }
}
