package io.rdq.client;

/** There is no such message of an outbox. Reason {@code OUTBOX_MISSING}. */
public final class OutboxMissingException extends RdqException {
  OutboxMissingException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The id that names no message. */
  public String id() {
    return text("id");
  }
}
