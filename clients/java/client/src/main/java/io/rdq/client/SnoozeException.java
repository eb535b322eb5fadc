package io.rdq.client;

import java.time.Duration;

/** Thrown by a handler: not now. The task is due again after a delay, and no attempt is spent. */
public class SnoozeException extends RuntimeException {
  private final Duration delay;

  /** With the delay. */
  public SnoozeException(Duration delay) {
    super("snoozed for " + delay);
    this.delay = delay;
  }

  /** After how long the task is due again. */
  public Duration delay() {
    return delay;
  }
}
