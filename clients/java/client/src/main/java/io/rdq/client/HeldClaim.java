package io.rdq.client;

import com.google.protobuf.ByteString;
import io.rdq.v1.ClaimedTask;
import io.rdq.v1.ExtendLeaseRequest;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;

/**
 * One delivery of a task, known by its token. What the loop decides of it belongs to the loop's
 * thread; what its handler shares with the loop is guarded by this object's lock.
 */
final class HeldClaim {
  private static final long MARGIN_NANOS = Duration.ofMillis(100).toNanos();
  private static final long TIMEOUT_MARGIN_NANOS = Duration.ofSeconds(1).toNanos();

  final ClaimedTask proto;
  final ByteString token;

  /** How long the lease is that an extension gives. */
  final long leaseNanos;

  /** When too little is left of the lease to start the handler. */
  final long startByNanos;

  /** When the handler is stopped; {@link Long#MAX_VALUE} for never. */
  final long timeoutAtNanos;

  final CompletableFuture<CancelReason> cancellation = new CompletableFuture<>();

  // The loop's.
  /** When the claim is released although its handler, which was stopped, still runs. */
  long releaseAtNanos = Long.MAX_VALUE;

  boolean isStarted;
  boolean handlerRuns;

  /** Whether what the handler still does has no effect: it is decided how the claim ends. */
  boolean isDecided;

  /** How it ends, until that is answered. */
  Delivery delivery;

  /** Whether the delivery waits until the last progress is stored. */
  boolean isFlushing;

  /** How long it waits between its tries to do so. */
  final Backoff flushBackoff = new Backoff(Calls.BACKOFF_MAX);

  long heartbeatAtNanos;
  long wakeAtNanos = Long.MAX_VALUE;
  final long order;

  // Guarded by this object's lock.
  private Thread handlerThread;
  private CancelReason reason;
  private ByteString progress;
  private long progressSet;
  private long progressStored;

  /**
   * A claim that arrived.
   *
   * @param arrivedNanos when it arrived
   * @param order tells it from others that are to be woken at the same time
   */
  HeldClaim(ClaimedTask proto, long arrivedNanos, long order) {
    this.proto = proto;
    this.order = order;
    token = proto.getClaimToken();
    long remaining = Times.nanos(Times.duration(proto.getLeaseRemaining()));
    leaseNanos = Math.max(1, leaseNanos(proto, remaining));
    startByNanos = arrivedNanos + remaining - marginNanos(leaseNanos);
    timeoutAtNanos =
        proto.hasExecutionTimeout()
            ? arrivedNanos
                - (leaseNanos - remaining)
                + timeoutNanos(Times.duration(proto.getExecutionTimeout()))
            : Long.MAX_VALUE;
    // A third of the lease after it began, which may be some time ago.
    heartbeatAtNanos = arrivedNanos + Math.max(0, remaining - (leaseNanos - leaseNanos / 3));
  }

  String taskId() {
    return proto.getTask().getId();
  }

  /** With less than this left of a lease, a handler is not started. */
  static long marginNanos(long leaseNanos) {
    return Math.min(Math.max(leaseNanos / 10, MARGIN_NANOS), leaseNanos / 2);
  }

  /**
   * How long after the claim the handler is stopped. A little less than the queue allows: the lease
   * ends with the timeout, and the failure has to be there before another claims the task.
   */
  static long timeoutNanos(Duration timeout) {
    long nanos = Times.nanos(timeout);
    return nanos - Math.min(nanos / 10, TIMEOUT_MARGIN_NANOS);
  }

  private static long leaseNanos(ClaimedTask proto, long remaining) {
    io.rdq.v1.Task task = proto.getTask();
    if (!task.hasClaimedAt() || !task.hasLeaseExpiresAt()) {
      return remaining;
    }
    Duration lease =
        Duration.between(
            Times.instant(task.getClaimedAt()), Times.instant(task.getLeaseExpiresAt()));
    return Math.max(remaining, Times.nanos(lease));
  }

  /** The handler begins on the calling thread; false if it is not to run any more. */
  synchronized boolean begin() {
    if (reason != null) {
      return false;
    }
    handlerThread = Thread.currentThread();
    return true;
  }

  /** The handler ended; from here on its thread is not interrupted for it. */
  void end() {
    synchronized (this) {
      handlerThread = null;
    }
    // One that came too late to be seen by the handler is not for the thread's next user.
    Thread.interrupted();
  }

  /** Stops the handler, and tells it why. The first reason stays. */
  void cancel(CancelReason why, Executor executor) {
    synchronized (this) {
      if (reason != null) {
        return;
      }
      reason = why;
      if (handlerThread != null) {
        handlerThread.interrupt();
      }
    }
    try {
      // What the handler hung on it is not for the loop's thread.
      executor.execute(() -> cancellation.complete(why));
    } catch (RejectedExecutionException isShutDown) {
      cancellation.complete(why);
    }
  }

  /** Why the handler is to stop; null while it is not. */
  synchronized CancelReason reason() {
    return reason;
  }

  synchronized void setProgress(byte[] bytes) {
    progress = ByteString.copyFrom(bytes);
    progressSet++;
  }

  synchronized boolean hasNewProgress() {
    return progressSet > progressStored;
  }

  /** Progress up to this number is stored, or never will be. */
  synchronized void progressDone(long number) {
    progressStored = Math.max(progressStored, number);
  }

  /** A heartbeat, with the progress if it is new. */
  synchronized Heartbeat heartbeat() {
    ExtendLeaseRequest.Builder request =
        ExtendLeaseRequest.newBuilder().setId(taskId()).setClaimToken(token);
    if (progressSet > progressStored) {
      request.setProgress(progress);
    }
    return new Heartbeat(this, request.build(), progressSet);
  }
}
