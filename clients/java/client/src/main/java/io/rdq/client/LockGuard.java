package io.rdq.client;

import static java.lang.System.Logger.Level.DEBUG;
import static java.lang.System.Logger.Level.ERROR;
import static java.lang.System.Logger.Level.WARNING;

import io.grpc.CallOptions;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import io.rdq.v1.LockServiceGrpc;
import io.rdq.v1.LockServiceReleaseRequest;
import io.rdq.v1.RenewRequest;
import io.rdq.v1.RenewResponse;
import io.rdq.v1.TryLockRequest;
import io.rdq.v1.TryLockResponse;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * A lock that is held, and renewed in the background, until it is closed or lost.
 *
 * <p>When it is lost, no later than its end at the server, the thread that acquired it is
 * interrupted, and {@link Builder#onLost} called. A process that is stopped as a whole is told
 * late: so what the lock guards should refuse a {@link #generation} lower than one that it saw.
 *
 * <p>Safe for many threads. Close it on the thread that acquired it.
 */
public final class LockGuard implements AutoCloseable {
  private static final System.Logger LOG = System.getLogger("io.rdq.client.LockGuard");
  private static final Duration WAIT_MAX = Duration.ofSeconds(1);
  private static final Duration RELEASE_MAX = Duration.ofSeconds(5);
  private static final Duration FORGET_MAX = Duration.ofSeconds(1);
  private static final long TRY_MAX = Duration.ofSeconds(10).toNanos();

  private final Calls calls;
  private final String name;
  private final String owner;
  private final Duration ttl;
  private final long generation;
  private final Consumer<LockLostException> onLost;
  private final Thread holder;
  private final boolean interruptsHolder;
  private final ScheduledThreadPoolExecutor clock;

  /** By the monotonic clock; never later than the server's. */
  private long endNanos;

  private RdqException lastRenewal;
  private LockLostException lost;
  private boolean isOver;
  private boolean hasInterrupted;

  private LockGuard(Builder builder, long sentNanos, TryLockResponse answer) {
    calls = builder.calls;
    name = builder.name;
    owner = builder.owner;
    ttl = builder.ttl;
    onLost = builder.onLost;
    holder = Thread.currentThread();
    interruptsHolder = builder.interruptsHolder;
    generation = answer.getGeneration();
    endNanos = end(sentNanos, answer.getRemaining());
    clock =
        new ScheduledThreadPoolExecutor(
            1,
            task -> {
              Thread thread = new Thread(task, "rdq-lock-" + builder.name);
              thread.setDaemon(true);
              return thread;
            });
  }

  private LockGuard begin(long sentNanos) {
    at(endNanos, this::expire);
    at(sentNanos + Times.nanos(ttl) / 3, this::renew);
    return this;
  }

  private void at(long nanos, Runnable task) {
    clock.schedule(task, nanos - System.nanoTime(), TimeUnit.NANOSECONDS);
  }

  private long end(long sentNanos, com.google.protobuf.Duration remaining) {
    return sentNanos + Math.min(Times.nanos(Times.duration(remaining)), Times.nanos(ttl));
  }

  private synchronized void renew() {
    if (isOver) {
      return;
    }
    long sentNanos = System.nanoTime();
    long left = Math.max(1, Math.min(TRY_MAX, endNanos - sentNanos));
    CallOptions options =
        CallOptions.DEFAULT
            .withDeadlineAfter(left, TimeUnit.NANOSECONDS)
            .withExecutor(Runnable::run);
    RenewRequest request =
        RenewRequest.newBuilder()
            .setName(name)
            .setOwner(owner)
            .setGeneration(generation)
            .setTtl(Times.proto(ttl))
            .build();
    Calls.wakeUp(calls.channel());
    ClientCalls.asyncUnaryCall(
        calls.channel().newCall(LockServiceGrpc.getRenewMethod(), options),
        request,
        new StreamObserver<RenewResponse>() {
          private RenewResponse answer = RenewResponse.getDefaultInstance();

          @Override
          public void onNext(RenewResponse message) {
            answer = message;
          }

          @Override
          public void onError(Throwable thrown) {
            notRenewed(Errors.of(thrown));
          }

          @Override
          public void onCompleted() {
            renewed(sentNanos, answer);
          }
        });
  }

  private synchronized void renewed(long sentNanos, RenewResponse answer) {
    if (isOver) {
      return; // an answer that comes too late brings nothing back
    }
    lastRenewal = null;
    if (!answer.getRenewed()) {
      clock.execute(this::lose);
      return;
    }
    endNanos = end(sentNanos, answer.getRemaining());
    at(endNanos, this::expire);
    at(sentNanos + Times.nanos(ttl) / 3, this::renew);
  }

  private synchronized void notRenewed(RdqException error) {
    if (isOver) {
      return;
    }
    lastRenewal = error;
    LOG.log(WARNING, "the lock {0} was not renewed: {1}", name, error.getMessage());
    at(System.nanoTime() + Math.max(1_000_000, Times.nanos(ttl) / 10), this::renew);
  }

  private void expire() {
    synchronized (this) {
      if (endNanos - System.nanoTime() > 0) {
        return; // it was renewed, and its new end is looked at then
      }
    }
    lose();
  }

  private void lose() {
    synchronized (this) {
      if (isOver) {
        return;
      }
      isOver = true;
      lost = new LockLostException(name, generation, lastRenewal);
      LOG.log(ERROR, "{0}", lost.getMessage());
      if (interruptsHolder) {
        hasInterrupted = true;
        holder.interrupt();
      }
    }
    clock.shutdownNow();
    onLost.accept(lost);
  }

  /** The lock's name. */
  public String name() {
    return name;
  }

  /** Who holds it. */
  public String owner() {
    return owner;
  }

  /** The hold's fencing number, which grows with each acquisition of the lock. */
  public long generation() {
    return generation;
  }

  /** Whether the lock was lost before it was closed. */
  public synchronized boolean isLost() {
    return lost != null;
  }

  /**
   * Does nothing while the lock is held, or once it was closed.
   *
   * @throws LockLostException if the lock was lost
   */
  public synchronized void throwIfLost() {
    if (lost != null) {
      throw lost;
    }
  }

  /**
   * Releases the lock, in 5 seconds at most. A release that fails is logged: the hold ends by
   * itself. Of a lock that is lost, and when it is called again, it only takes back the interrupt
   * that told of the loss, if that was not seen.
   */
  @Override
  public void close() {
    long left;
    synchronized (this) {
      if (hasInterrupted && Thread.currentThread() == holder) {
        hasInterrupted = false;
        Thread.interrupted();
      }
      if (isOver) {
        return;
      }
      isOver = true;
      left = endNanos - System.nanoTime();
    }
    clock.shutdownNow();
    if (left <= 0) {
      return;
    }
    Duration within = Duration.ofNanos(Math.min(left, RELEASE_MAX.toNanos()));
    LockServiceReleaseRequest request =
        LockServiceReleaseRequest.newBuilder()
            .setName(name)
            .setOwner(owner)
            .setGeneration(generation)
            .build();
    try {
      calls.within(within).uninterrupted(LockServiceGrpc.getReleaseMethod(), request);
    } catch (RdqException error) {
      LOG.log(WARNING, "the lock {0} was not released: {1}", name, error.getMessage());
    }
  }

  /** Settings of a lock, before it is acquired. */
  public static final class Builder {
    private final Calls calls;
    private final String name;
    private String owner = Ids.workerId();
    private Duration ttl = Duration.ofSeconds(30);
    private Duration waiting = Duration.ZERO;
    private Consumer<LockLostException> onLost = lost -> {};
    private boolean interruptsHolder = true;

    Builder(Calls calls, String name) {
      this.calls = calls;
      this.name = Objects.requireNonNull(name, "name");
    }

    /**
     * How long the hold lasts if it is not renewed, which is done at a third of it; 30 seconds if
     * unset.
     */
    public Builder ttl(Duration duration) {
      ttl = Objects.requireNonNull(duration, "duration");
      return this;
    }

    /** How long to wait for a lock that another holds; not at all if unset. */
    public Builder waiting(Duration duration) {
      waiting = Objects.requireNonNull(duration, "duration");
      return this;
    }

    /**
     * Names the holder; host, process id and random letters if unset. Two who share an owner share
     * the lock.
     */
    public Builder owner(String holder) {
      owner = Objects.requireNonNull(holder, "holder");
      return this;
    }

    /** Called once, on a thread of the guard's, if the lock is lost. */
    public Builder onLost(Consumer<LockLostException> hears) {
      onLost = Objects.requireNonNull(hears, "hears");
      return this;
    }

    /** Leaves the thread that acquires the lock alone when it is lost. */
    public Builder withoutInterrupt() {
      interruptsHolder = false;
      return this;
    }

    /**
     * Acquires the lock.
     *
     * @throws LockHeldException if another holds it for longer than there is time to wait
     * @throws InterruptedException if the thread was interrupted while it waited for another
     */
    public LockGuard acquire() throws InterruptedException {
      Backoff backoff = new Backoff(WAIT_MAX);
      long until = System.nanoTime() + Times.nanos(waiting);
      while (true) {
        LockGuard guard = attempt();
        if (guard != null) {
          return guard;
        }
        long left = until - System.nanoTime();
        if (left <= 0) {
          throw new LockHeldException(name);
        }
        TimeUnit.NANOSECONDS.sleep(Math.min(left, backoff.nextNanos()));
      }
    }

    /** Null if another holds it. */
    private LockGuard attempt() {
      TryLockRequest request =
          TryLockRequest.newBuilder()
              .setName(name)
              .setOwner(owner)
              .setTtl(Times.proto(ttl))
              .build();
      Calls.Tries tries = calls.tries();
      while (true) {
        long sentNanos = System.nanoTime();
        try {
          TryLockResponse answer = calls.once(LockServiceGrpc.getTryLockMethod(), request, tries);
          return answer.getAcquired()
              ? new LockGuard(this, sentNanos, answer).begin(sentNanos)
              : null;
        } catch (RdqException error) {
          try {
            tries.next(error);
          } catch (RdqException last) {
            forget();
            throw last;
          }
        }
      }
    }

    /** Releases a lock that may have been acquired although the call failed. */
    private void forget() {
      calls.tell(
          LockServiceGrpc.getReleaseMethod(),
          LockServiceReleaseRequest.newBuilder().setName(name).setOwner(owner).build(),
          FORGET_MAX,
          error -> LOG.log(DEBUG, "a lock that may be held was not released", error));
    }
  }
}
