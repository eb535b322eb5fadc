package io.rdq.client;

import java.time.Duration;

/** Thrown by a handler: the attempt failed, and the task is due again after a delay. */
public class RetryAfterException extends RuntimeException {
  private final Duration delay;

  /** With what happened. */
  public RetryAfterException(Duration delay, String message) {
    super(message);
    this.delay = delay;
  }

  /** With its cause, whose type and message are the failure's. */
  public RetryAfterException(Duration delay, Throwable cause) {
    super(cause);
    this.delay = delay;
  }

  /** After how long the task is due again. */
  public Duration delay() {
    return delay;
  }
}
