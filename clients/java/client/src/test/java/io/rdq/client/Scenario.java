package io.rdq.client;

import static org.junit.jupiter.api.Assertions.fail;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.rdq.v1.ClaimDueRequest;
import io.rdq.v1.ClaimedTask;
import io.rdq.v1.CompleteRequest;
import io.rdq.v1.TaskServiceGrpc;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.function.Supplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/**
 * What every scenario begins with: a server of its own and a client of it. What a test opens is
 * closed after it, the last first, however it ended.
 */
abstract class Scenario {
  /**
   * How often a test looks for what it waits for, before it says that it does not come. Counted,
   * not timed: a machine that stands still for minutes fails no test.
   */
  private static final int LOOKS_MAX = 10_000;

  private static final Duration BETWEEN_LOOKS = Duration.ofMillis(20);

  /** For what must not end because the machine stood still. */
  private static final Duration CALL_TIMEOUT = Duration.ofMinutes(10);

  static final String QUEUE = "mail";

  private final Deque<AutoCloseable> opened = new ArrayDeque<>();

  TestServer server;
  RdqClient client;
  Producer producer;
  Operator operator;

  @BeforeEach
  void begin() {
    server = open(TestServer.start(serverOptions()));
    client = connect(server.address());
    producer = client.producer();
    operator = client.operator();
  }

  /** A client of what listens there. */
  final RdqClient connect(String address) {
    return open(RdqClient.builder(address).callTimeout(CALL_TIMEOUT).build());
  }

  /** With what the server is started beside the usual. */
  String[] serverOptions() {
    return new String[0];
  }

  @AfterEach
  void end() throws Exception {
    Exception first = null;
    while (!opened.isEmpty()) {
      try {
        opened.pop().close();
      } catch (Exception error) {
        first = first == null ? error : first;
      }
    }
    if (first != null) {
      throw first;
    }
  }

  /** Has it closed after the test. */
  final <T extends AutoCloseable> T open(T resource) {
    opened.push(resource);
    return resource;
  }

  /** Starts a worker that is stopped, without grace, after the test. */
  final Worker start(Worker.Builder builder) {
    return open(builder.grace(Duration.ZERO).start());
  }

  /** Waits until something is there, looking again and again. */
  static <T> T await(String what, Supplier<Optional<T>> look) {
    for (int i = 0; i < LOOKS_MAX; i++) {
      Optional<T> found = look.get();
      if (found.isPresent()) {
        return found.get();
      }
      pause();
    }
    return fail("waited in vain: " + what);
  }

  /** Waits until something holds. */
  static void awaitThat(String what, Callable<Boolean> holds) {
    await(
        what,
        () -> {
          try {
            return holds.call() ? Optional.of(true) : Optional.empty();
          } catch (Exception error) {
            throw new AssertionError(what, error);
          }
        });
  }

  static void await(CountDownLatch latch) {
    awaitThat("it is counted down", () -> latch.getCount() == 0);
  }

  /** Blocks a handler until it is interrupted. */
  static void blockUntilStopped() throws InterruptedException {
    new CountDownLatch(1).await();
  }

  private static void pause() {
    try {
      Thread.sleep(BETWEEN_LOOKS.toMillis());
    } catch (InterruptedException interrupted) {
      throw new AssertionError(interrupted);
    }
  }

  /** Waits until a task is in a status. */
  final Task await(String id, TaskStatus status) {
    return await(
        id + " is " + status,
        () -> Optional.of(operator.get(id)).filter(task -> task.status() == status));
  }

  /** A channel for calls that the client does not offer. */
  final ManagedChannel channel() {
    ManagedChannel channel =
        ManagedChannelBuilder.forTarget(server.address()).usePlaintext().build();
    open(channel::shutdownNow);
    return channel;
  }

  /** Another claimant: takes what is due now. */
  static Optional<ClaimedTask> claim(ManagedChannel channel, String queue, Duration lease) {
    ClaimDueRequest request =
        ClaimDueRequest.newBuilder()
            .addQueues(queue)
            .setWorkerId("rival")
            .setLease(Times.proto(lease))
            .build();
    List<ClaimedTask> claimed =
        TaskServiceGrpc.newBlockingStub(channel).claimDue(request).next().getTasksList();
    return claimed.stream().findFirst();
  }

  static void complete(ManagedChannel channel, ClaimedTask claimed, String result) {
    TaskServiceGrpc.newBlockingStub(channel)
        .complete(
            CompleteRequest.newBuilder()
                .setId(claimed.getTask().getId())
                .setClaimToken(claimed.getClaimToken())
                .setResult(ByteString.copyFromUtf8(result))
                .build());
  }

  static String text(byte[] bytes) {
    return new String(bytes, StandardCharsets.UTF_8);
  }

  /** All bytes there are. */
  static byte[] allBytes() {
    byte[] bytes = new byte[256];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) i;
    }
    return bytes;
  }

  /** What a retry does not wait for. */
  static QueueConfig.Builder promptRetries() {
    return QueueConfig.builder()
        .initialBackoff(Duration.ofMillis(10))
        .multiplier(1)
        .maxBackoff(Duration.ofMillis(10));
  }
}
