package io.rdq.client;

/** Thrown by a handler: the task is dead, whatever attempts it has left. */
public class PermanentException extends RuntimeException {
  /** With what happened. */
  public PermanentException(String message) {
    super(message);
  }

  /** With what happened, and its cause, whose type is the failure's. */
  public PermanentException(String message, Throwable cause) {
    super(message, cause);
  }

  /** With its cause, whose type and message are the failure's. */
  public PermanentException(Throwable cause) {
    super(cause);
  }
}
