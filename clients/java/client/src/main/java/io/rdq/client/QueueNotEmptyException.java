package io.rdq.client;

/** The queue still holds tasks. Reason {@code QUEUE_NOT_EMPTY}. */
public final class QueueNotEmptyException extends RdqException {
  QueueNotEmptyException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The queue. */
  public String queue() {
    return text("queue");
  }
}
