package io.rdq.client;

/** There is no such queue. Reason {@code QUEUE_NOT_FOUND}. */
public final class QueueNotFoundException extends RdqException {
  QueueNotFoundException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The name that names no queue. */
  public String queue() {
    return text("queue");
  }
}
