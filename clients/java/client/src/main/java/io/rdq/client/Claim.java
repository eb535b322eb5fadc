package io.rdq.client;

import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletionStage;

/** A claim of a task: one attempt of it, for its handler. Safe for many threads. */
public final class Claim {
  /** The largest progress, by the contract. */
  private static final int PROGRESS_BYTES_MAX = 64 << 10;

  private final HeldClaim held;
  private final Task task;

  Claim(HeldClaim held) {
    this.held = held;
    task = new Task(held.proto.getTask());
  }

  /** The task, with what earlier attempts left: history (without stacks) and progress. */
  public Task task() {
    return task;
  }

  /** The task's id. */
  public String id() {
    return task.id();
  }

  /** What the producer sent; a copy. */
  public byte[] payload() {
    return task.payload();
  }

  /** The task's headers. */
  public Map<String, String> headers() {
    return task.headers();
  }

  /** The number that this attempt has in the history, from 1 for the task's life. */
  public int attemptNumber() {
    return held.proto.getAttemptNo();
  }

  /** How many attempts the task has, its own or the queue's. */
  public int maxAttempts() {
    return held.proto.getMaxAttempts();
  }

  /**
   * Grows with every claim of the task, for ever: a fencing token for systems that should refuse a
   * slower, older worker.
   */
  public long generation() {
    return held.proto.getGeneration();
  }

  /**
   * Keeps a checkpoint for the next attempt. It is sent with the next extension of the lease, or
   * before the outcome; the last one set wins.
   *
   * @param progress at most 64 KiB; empty clears it
   * @throws IllegalArgumentException if it is larger
   */
  public void progress(byte[] progress) {
    if (progress.length > PROGRESS_BYTES_MAX) {
      throw new IllegalArgumentException(
          "progress has " + progress.length + " bytes, more than " + PROGRESS_BYTES_MAX);
    }
    held.setProgress(progress);
  }

  /** Whether the attempt is to stop. The handler's thread was interrupted then. */
  public boolean isCancelled() {
    return cancelReason().isPresent();
  }

  /** Why the attempt is to stop; empty while it is not. */
  public Optional<CancelReason> cancelReason() {
    return Optional.ofNullable(held.reason());
  }

  /** Completes when the attempt is to stop, with the reason; for handlers that wait elsewhere. */
  public CompletionStage<CancelReason> cancellation() {
    return held.cancellation.minimalCompletionStage();
  }

  /** Names the task, and shows nothing of what it carries. */
  @Override
  public String toString() {
    return "Claim{id=" + id() + ", attempt=" + attemptNumber() + "}";
  }
}
