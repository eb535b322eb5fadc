package io.rdq.client;

/**
 * The record is at another revision than the call expects, or does not exist; nothing changed.
 * Reason {@code CAS_CONFLICT}.
 */
public final class CasConflictException extends RdqException {
  CasConflictException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The record's key. */
  public String key() {
    return text("key");
  }

  /** The revision that the call expected. */
  public long expectedRevision() {
    return number("expected_revision");
  }
}
