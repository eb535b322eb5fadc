package io.rdq.client;

import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.rdq.v1.GetCapabilitiesRequest;
import io.rdq.v1.TaskServiceGrpc;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A real server, on a free port and a file of its own, which ends with the test that started it.
 */
final class TestServer implements AutoCloseable {
  private static final int STARTS_MAX = 10;
  private static final Set<Process> RUNNING = ConcurrentHashMap.newKeySet();

  static {
    // For a run that is broken off.
    Runtime.getRuntime()
        .addShutdownHook(new Thread(() -> RUNNING.forEach(Process::destroyForcibly)));
  }

  private final Path folder;
  private final List<String> options;
  private int port;
  private Process process;

  private TestServer(Path folder, List<String> options) {
    this.folder = folder;
    this.options = options;
  }

  /** Starts one, and waits until it serves. */
  static TestServer start(String... options) {
    try {
      TestServer server = new TestServer(Files.createTempDirectory("rdq-java-"), List.of(options));
      for (int i = 0; i < STARTS_MAX; i++) {
        server.port = freePort();
        if (server.spawn()) {
          return server;
        }
      }
      throw new AssertionError("the server did not start:\n" + server.log());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Where it listens. */
  String address() {
    return "127.0.0.1:" + port;
  }

  int port() {
    return port;
  }

  /** Ends it as a crash does. */
  void kill() {
    process.destroyForcibly();
    process.onExit().join();
    RUNNING.remove(process);
  }

  /** Tells it to drain and end. */
  void terminate() {
    process.destroy();
  }

  /** Waits until it ended. */
  void awaitEnd() {
    process.onExit().join();
    RUNNING.remove(process);
  }

  /** Starts it again, after it ended, on its port and its file. */
  void restart() {
    for (int i = 0; i < STARTS_MAX; i++) {
      if (spawn()) {
        return;
      }
    }
    throw new AssertionError("the server did not start again:\n" + log());
  }

  @Override
  public void close() {
    kill();
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static Path binary() {
    String named = System.getenv("RDQ_BIN");
    return named != null && !named.isEmpty()
        ? Path.of(named)
        : Path.of("../../../target/debug/rdq").toAbsolutePath();
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      return socket.getLocalPort();
    }
  }

  private String log() {
    try {
      return Files.readString(folder.resolve("log"));
    } catch (IOException error) {
      return "no log: " + error;
    }
  }

  /** Starts the process, and waits until it serves; false if it ended instead. */
  private boolean spawn() {
    List<String> command =
        new ArrayList<>(
            List.of(
                binary().toString(),
                "serve",
                "--listen",
                address(),
                "--http",
                "127.0.0.1:0",
                "--storage",
                "sqlite:" + folder.resolve("rdq.db")));
    command.addAll(options);
    try {
      process =
          new ProcessBuilder(command)
              .redirectErrorStream(true)
              .redirectOutput(ProcessBuilder.Redirect.appendTo(folder.resolve("log").toFile()))
              .start();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    RUNNING.add(process);
    ManagedChannel channel = ManagedChannelBuilder.forTarget(address()).usePlaintext().build();
    try {
      while (process.isAlive()) {
        if (serves(channel)) {
          return true;
        }
        channel.resetConnectBackoff();
        if (process.waitFor(20, TimeUnit.MILLISECONDS)) {
          break;
        }
      }
      RUNNING.remove(process);
      return false;
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    } finally {
      channel.shutdownNow();
    }
  }

  private static boolean serves(ManagedChannel channel) {
    try {
      var answer =
          TaskServiceGrpc.newBlockingStub(channel)
              .withDeadlineAfter(10, TimeUnit.SECONDS)
              .getCapabilities(GetCapabilitiesRequest.getDefaultInstance());
      return !answer.getServerVersion().isEmpty();
    } catch (StatusRuntimeException notYet) {
      return false;
    }
  }
}
