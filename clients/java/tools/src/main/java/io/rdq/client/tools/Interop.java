package io.rdq.client.tools;

import io.rdq.client.Claim;
import io.rdq.client.NewTask;
import io.rdq.client.PermanentException;
import io.rdq.client.RdqClient;
import io.rdq.client.RdqException;
import io.rdq.client.TaskStatus;
import io.rdq.client.Worker;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** Enqueues tasks for workers in other languages, and works what those enqueued. */
public final class Interop {
  private static final String GREETING = "🚀 ñ مرحبا";
  private static final long PATIENCE_NANOS = TimeUnit.SECONDS.toNanos(60);

  private Interop() {}

  /** Runs {@code produce} or {@code work}. */
  public static void main(String[] words) throws Exception {
    String command = words.length == 0 ? "" : words[0];
    Arguments arguments = new Arguments(words, Math.min(1, words.length));
    int status =
        switch (command) {
          case "produce" -> produce(arguments);
          case "work" -> work(arguments);
          default -> {
            System.err.println("usage: interop produce|work --server HOST:PORT --queue Q ...");
            yield 2;
          }
        };
    System.exit(status);
  }

  private static int produce(Arguments arguments) {
    List<NewTask> tasks = new ArrayList<>();
    for (int i = 1; i <= arguments.number("count"); i++) {
      String id = arguments.text("prefix") + "-" + i;
      tasks.add(
          NewTask.builder(arguments.text("queue"), "interop.echo")
              .id(id)
              .payload(payload(id))
              .header("language", "java")
              .header("greeting", GREETING)
              .build());
    }
    try (RdqClient client = RdqClient.connect(arguments.text("server"))) {
      client.producer().enqueueMany(tasks).forEach(result -> result.orThrow());
    }
    return 0;
  }

  private static int work(Arguments arguments) throws InterruptedException {
    int count = arguments.number("count");
    Set<String> ended = ConcurrentHashMap.newKeySet();
    AtomicReference<Throwable> failure = new AtomicReference<>();
    try (RdqClient client = RdqClient.connect(arguments.text("server"))) {
      Worker worker =
          client
              .worker(arguments.text("queue"))
              .handler(
                  "interop.echo",
                  claim -> {
                    byte[] result = echo(claim);
                    ended.add(claim.id());
                    return result;
                  })
              .outcomeMapper(
                  (claim, returned, thrown) -> {
                    failure.compareAndSet(null, thrown);
                    return null;
                  })
              .start();
      long end = System.nanoTime() + PATIENCE_NANOS;
      while (ended.size() < count && failure.get() == null && System.nanoTime() < end) {
        TimeUnit.MILLISECONDS.sleep(5);
      }
      worker.stop();
      if (failure.get() != null) {
        System.err.println("a task failed: " + failure.get());
        return 1;
      }
      for (String id : ended) {
        if (!hasSucceeded(client, id)) {
          System.err.println("task " + id + " did not succeed");
          return 1;
        }
      }
    }
    if (ended.size() < count) {
      System.err.println("only " + ended.size() + " of " + count + " tasks in 60 s");
      return 1;
    }
    return 0;
  }

  private static boolean hasSucceeded(RdqClient client, String id) {
    try {
      return client.operator().get(id).status() == TaskStatus.SUCCEEDED;
    } catch (RdqException error) {
      return false;
    }
  }

  private static byte[] echo(Claim claim) throws Exception {
    if (!Arrays.equals(payload(claim.id()), claim.payload())) {
      throw new PermanentException("the payload of " + claim.id() + " is another");
    }
    if (!GREETING.equals(claim.headers().get("greeting"))) {
      throw new PermanentException("the greeting of " + claim.id() + " is another");
    }
    return MessageDigest.getInstance("SHA-256").digest(claim.payload());
  }

  /** The id, a zero, the greeting, and all bytes there are. */
  private static byte[] payload(String id) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    bytes.writeBytes(id.getBytes(StandardCharsets.UTF_8));
    bytes.write(0);
    bytes.writeBytes(GREETING.getBytes(StandardCharsets.UTF_8));
    for (int value = 0; value < 256; value++) {
      bytes.write(value);
    }
    return bytes.toByteArray();
  }
}
