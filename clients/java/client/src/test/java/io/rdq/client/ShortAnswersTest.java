package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.InvalidProtocolBufferException;
import io.grpc.Status;
import io.rdq.v1.EnqueueBatchResponse;
import io.rdq.v1.ExtendLeasesResponse;
import io.rdq.v1.ResolveBatchResponse;
import io.rdq.v1.ResolveResult;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Answers with fewer results than the request had items: nothing is lost by them. */
class ShortAnswersTest extends Scenario {
  private final AtomicInteger resolves = new AtomicInteger();
  private final AtomicInteger extensions = new AtomicInteger();

  private final GrpcProxy.Rules cut =
      new GrpcProxy.Rules() {
        @Override
        public byte[] answer(String method, byte[] message) {
          try {
            return switch (method) {
              case "EnqueueBatch" ->
                  EnqueueBatchResponse.newBuilder()
                      .addResults(EnqueueBatchResponse.parseFrom(message).getResults(0))
                      .build()
                      .toByteArray();
              case "ExtendLeases" -> {
                extensions.incrementAndGet();
                yield ExtendLeasesResponse.getDefaultInstance().toByteArray();
              }
              case "ResolveBatch" -> resolves.incrementAndGet() > 1 ? message : silent();
              default -> message;
            };
          } catch (InvalidProtocolBufferException error) {
            throw new AssertionError(error);
          }
        }

        /** One result says nothing, and the others are missing. */
        private byte[] silent() {
          ResolveResult nothing = ResolveResult.getDefaultInstance();
          return ResolveBatchResponse.newBuilder().addResults(nothing).build().toByteArray();
        }
      };

  @Test
  void whatHasNoResultIsSentAgainOrSaysSo() {
    RdqClient through = connect(open(new GrpcProxy(server, cut)).address());
    List<NewTask> tasks =
        Stream.of("a", "b", "c").map(id -> NewTask.builder(QUEUE, "waits").id(id).build()).toList();

    List<EnqueueResult> results = through.producer().enqueueMany(tasks);

    assertTrue(results.get(0).isAdmitted());
    for (EnqueueResult result : results.subList(1, 3)) {
      RdqException error = result.error().orElseThrow();
      assertEquals(Status.Code.INTERNAL, error.code());
      assertTrue(error.outcomeUnknown());
    }

    CountDownLatch started = new CountDownLatch(3);
    CountDownLatch ends = new CountDownLatch(1);
    Worker worker =
        open(
            through
                .worker(QUEUE)
                .receiving(Worker.Receiving.CLAIM_DUE)
                .lease(Duration.ofSeconds(2))
                .grace(Duration.ofHours(1))
                .handler(
                    "waits",
                    claim -> {
                      started.countDown();
                      ends.await();
                      return claim.id();
                    })
                .start());
    await(started);
    awaitThat("heartbeats are sent again", () -> extensions.get() >= 3);
    ends.countDown();
    for (String id : List.of("a", "b", "c")) {
      Task task = await(id, TaskStatus.SUCCEEDED);
      assertEquals(id, text(task.result()));
      assertEquals(1, task.attempts().size());
    }
    worker.stop(); // within its grace, since every outcome is answered
    assertTrue(resolves.get() > 1);
  }
}
