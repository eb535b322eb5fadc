package io.rdq.client;

/**
 * Thrown by a handler: the attempt failed and may run again, whatever the queue's classification
 * says of its type.
 */
public class RetryableException extends RuntimeException {
  /** With what happened. */
  public RetryableException(String message) {
    super(message);
  }

  /** With what happened, and its cause, whose type is the failure's. */
  public RetryableException(String message, Throwable cause) {
    super(message, cause);
  }

  /** With its cause, whose type and message are the failure's. */
  public RetryableException(Throwable cause) {
    super(cause);
  }
}
