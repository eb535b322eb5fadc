package io.rdq.client;

/**
 * The message of an outbox is not claimed by that worker with that generation; nothing changed.
 * Reason {@code OUTBOX_CLAIM_MISMATCH}.
 */
public final class OutboxClaimMismatchException extends RdqException {
  OutboxClaimMismatchException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The message. */
  public String id() {
    return text("id");
  }
}
