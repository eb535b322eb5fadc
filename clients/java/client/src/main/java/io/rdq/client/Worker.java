package io.rdq.client;

import io.grpc.Channel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Claims tasks and runs their handlers, until it is stopped.
 *
 * <p>It keeps the leases of running handlers, connects again after every end of its stream, and
 * sends each outcome until it is answered. A handler whose claim is lost, whose task is cancelled
 * or whose time is over is interrupted.
 *
 * <p>Safe for many threads.
 */
public final class Worker implements AutoCloseable {
  /** How claims arrive. */
  public enum Receiving {
    /** By {@link #WORK}, or by {@link #CLAIM_DUE} where the server does not know that. */
    AUTOMATIC,
    /** By a stream that carries claims, outcomes and heartbeats. */
    WORK,
    /** By a subscription; outcomes and heartbeats go by calls of their own. */
    CLAIM_DUE
  }

  private final WorkerLoop loop;
  private final Thread thread;
  private final ExecutorService ownExecutor;
  private final Thread shutdownHook;

  private Worker(Builder builder) {
    ownExecutor = builder.executor == null ? handlerThreads(builder.workerId) : null;
    WorkerSettings settings =
        new WorkerSettings(
            builder.queues,
            builder.workerId,
            builder.concurrency,
            Optional.ofNullable(builder.lease),
            builder.grace,
            builder.receiving,
            builder.mapper,
            builder.executor == null ? ownExecutor : builder.executor);
    loop = new WorkerLoop(builder.channel, settings, builder.router);
    thread = new Thread(loop, "rdq-worker-" + builder.workerId);
    shutdownHook = builder.stopsOnShutdown ? new Thread(this::stop, "rdq-worker-stop") : null;
  }

  private static ExecutorService handlerThreads(String workerId) {
    return Executors.newCachedThreadPool(
        task -> {
          Thread thread = new Thread(task, "rdq-handler-" + workerId);
          thread.setDaemon(true);
          return thread;
        });
  }

  private Worker begin() {
    if (shutdownHook != null) {
      Runtime.getRuntime().addShutdownHook(shutdownHook);
    }
    thread.start();
    return this;
  }

  /**
   * Drains: nothing more is claimed, what did not start is given back, and running handlers go on,
   * their leases kept, until they end or the grace is over; then they are interrupted and, unless
   * they succeed within a second, their tasks given back. Returns when every outcome is answered,
   * or 5 seconds after the grace.
   *
   * <p>Called again, it waits for the same end. An interrupt of the caller ends the waiting only.
   */
  public void stop() {
    loop.stop();
    awaitEnd();
  }

  /** As {@link #stop}, but returns at once; {@link #awaitStopped} waits for the end. */
  public void stopAsync() {
    loop.stop();
  }

  /**
   * Waits until somebody stopped this worker, and it is drained.
   *
   * @throws OtherContractVersionException if it stopped by itself, without having claimed anything,
   *     since the server's contract has another major version
   */
  public void awaitStopped() {
    awaitEnd();
    if (!thread.isAlive() && loop.failure() != null) {
      throw loop.failure();
    }
  }

  private void awaitEnd() {
    try {
      thread.join();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      return;
    }
    if (ownExecutor != null) {
      ownExecutor.shutdown();
    }
    removeShutdownHook();
  }

  /** As {@link #awaitStopped}, but no longer than this; true if the worker is stopped. */
  public boolean awaitStopped(Duration timeout) throws InterruptedException {
    TimeUnit.NANOSECONDS.timedJoin(thread, Math.max(1, Times.nanos(timeout)));
    if (thread.isAlive()) {
      return false;
    }
    awaitStopped();
    return true;
  }

  /** As {@link #stop}. */
  @Override
  public void close() {
    stop();
  }

  private void removeShutdownHook() {
    if (shutdownHook == null || Thread.currentThread() == shutdownHook) {
      return;
    }
    try {
      Runtime.getRuntime().removeShutdownHook(shutdownHook);
    } catch (IllegalStateException isShuttingDown) {
      // Then the hook has run, or is about to find nothing to do.
    }
  }

  /** What a worker is to do. */
  public static final class Builder {
    private static final int CONCURRENCY_MAX = 10_000;

    private final Channel channel;
    private final List<String> queues;
    private final Router router = new Router();
    private String workerId = Ids.workerId();
    private int concurrency = 10;
    private Duration lease;
    private Duration grace = Duration.ofSeconds(30);
    private Receiving receiving = Receiving.AUTOMATIC;
    private OutcomeMapper mapper = (claim, returned, thrown) -> null;
    private Executor executor;
    private boolean stopsOnShutdown;

    Builder(Channel channel, String... queues) {
      if (queues.length == 0) {
        throw new IllegalArgumentException("a worker needs a queue");
      }
      this.channel = channel;
      this.queues = List.copyOf(new ArrayList<>(List.of(queues)));
    }

    /** Runs the tasks of this name, of any version that has no handler of its own. */
    public Builder handler(String handlerRef, Handler handler) {
      router.add(handlerRef, null, Objects.requireNonNull(handler, "handler"));
      return this;
    }

    /** Runs the tasks of this name and version. */
    public Builder handler(String handlerRef, String version, Handler handler) {
      Objects.requireNonNull(version, "version");
      router.add(handlerRef, version, Objects.requireNonNull(handler, "handler"));
      return this;
    }

    /** How many tasks it has at a time, 1 to 10,000; 10 if unset. */
    public Builder concurrency(int handlers) {
      if (handlers < 1 || handlers > CONCURRENCY_MAX) {
        throw new IllegalArgumentException("concurrency must be 1 to " + CONCURRENCY_MAX);
      }
      concurrency = handlers;
      return this;
    }

    /** The lease of its claims, 10 milliseconds to 12 hours; the task's or the queue's if unset. */
    public Builder lease(Duration duration) {
      lease = Objects.requireNonNull(duration, "duration");
      return this;
    }

    /** How long {@link Worker#stop} lets handlers run; 30 seconds if unset. */
    public Builder grace(Duration duration) {
      if (duration.isNegative()) {
        throw new IllegalArgumentException("grace must not be negative");
      }
      grace = duration;
      return this;
    }

    /** Names the worker in attempts and listings; host, process id and random letters if unset. */
    public Builder workerId(String id) {
      workerId = Objects.requireNonNull(id, "id");
      return this;
    }

    /** How claims arrive; {@link Receiving#AUTOMATIC} if unset. */
    public Builder receiving(Receiving how) {
      receiving = Objects.requireNonNull(how, "how");
      return this;
    }

    /** Decides how attempts ended, before the worker does. */
    public Builder outcomeMapper(OutcomeMapper decides) {
      mapper = Objects.requireNonNull(decides, "decides");
      return this;
    }

    /**
     * Runs the handlers, each as one task, at most {@link #concurrency} at a time; threads of the
     * worker's own if unset. The worker does not shut it down.
     */
    public Builder executor(Executor runsHandlers) {
      executor = Objects.requireNonNull(runsHandlers, "runsHandlers");
      return this;
    }

    /** Stops the worker when the process is told to end, by SIGTERM or SIGINT. */
    public Builder stopOnShutdown() {
      stopsOnShutdown = true;
      return this;
    }

    /** Starts it. */
    public Worker start() {
      if (router.isEmpty()) {
        throw new IllegalStateException("a worker needs a handler");
      }
      return new Worker(this).begin();
    }
  }
}
