package io.rdq.client;

/** A value is missing, contradictory or out of range. Reason {@code INVALID_ARGUMENT}. */
public final class InvalidArgumentException extends RdqException {
  InvalidArgumentException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The field that holds it. */
  public String field() {
    return text("field");
  }
}
