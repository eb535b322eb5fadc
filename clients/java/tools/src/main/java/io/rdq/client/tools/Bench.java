package io.rdq.client.tools;

import com.google.common.util.concurrent.ListenableFuture;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.rdq.client.NewTask;
import io.rdq.client.RdqClient;
import io.rdq.client.Worker;
import io.rdq.v1.GetCapabilitiesRequest;
import io.rdq.v1.TaskServiceGrpc;
import java.util.Collections;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/** Measures one worker with a handler that does nothing, and bare calls beside it. */
public final class Bench {
  private static final int CONCURRENCY = 256;
  private static final int CALLS = 64;
  private static final long ECHO_NANOS = TimeUnit.SECONDS.toNanos(3);

  private Bench() {}

  /** Prints one line of JSON. */
  public static void main(String[] words) throws Exception {
    Arguments arguments = new Arguments(words, 0);
    double tasks = tasksPerSecond(arguments.text("server"), arguments.number("tasks"));
    double echo = echoPerSecond(arguments.text("server"));
    System.out.printf(
        Locale.ROOT,
        "{\"language\": \"java\", \"tasks_per_second\": %.0f, \"echo_per_second\": %.0f}%n",
        tasks,
        echo);
    System.exit(0);
  }

  private static double tasksPerSecond(String server, int count) throws InterruptedException {
    String queue = "bench-java-" + UUID.randomUUID();
    AtomicLong firstNanos = new AtomicLong();
    CountDownLatch started = new CountDownLatch(count);
    try (RdqClient client = RdqClient.connect(server)) {
      NewTask task = NewTask.of(queue, "nothing", new byte[100]);
      client.producer().enqueueMany(Collections.nCopies(count, task)).forEach(r -> r.orThrow());
      Worker worker =
          client
              .worker(queue)
              .concurrency(CONCURRENCY)
              .handler(
                  "nothing",
                  claim -> {
                    firstNanos.compareAndSet(0, System.nanoTime());
                    started.countDown();
                    return null;
                  })
              .start();
      started.await();
      // It returns when the last outcome is acknowledged.
      worker.stop();
      double seconds = (System.nanoTime() - firstNanos.get()) / 1e9;
      long succeeded = client.operator().stats(queue).get(0).succeeded();
      if (succeeded != count) {
        throw new IllegalStateException(succeeded + " of " + count + " tasks succeeded");
      }
      return count / seconds;
    }
  }

  private static double echoPerSecond(String server) throws InterruptedException {
    String target = server.replaceFirst("^https?://", "");
    ManagedChannel channel = ManagedChannelBuilder.forTarget(target).usePlaintext().build();
    TaskServiceGrpc.TaskServiceFutureStub stub = TaskServiceGrpc.newFutureStub(channel);
    Semaphore free = new Semaphore(CALLS);
    AtomicLong answers = new AtomicLong();
    long start = System.nanoTime();
    long end = start + ECHO_NANOS;
    while (System.nanoTime() < end) {
      free.acquire();
      ListenableFuture<?> call = stub.getCapabilities(GetCapabilitiesRequest.getDefaultInstance());
      call.addListener(
          () -> {
            answers.incrementAndGet();
            free.release();
          },
          Runnable::run);
    }
    double perSecond = answers.get() / ((System.nanoTime() - start) / 1e9);
    free.acquire(CALLS);
    channel.shutdownNow();
    return perSecond;
  }
}
