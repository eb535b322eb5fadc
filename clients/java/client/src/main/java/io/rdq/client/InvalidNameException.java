package io.rdq.client;

/** A name is empty, blank, too long or has control characters. Reason {@code INVALID_NAME}. */
public final class InvalidNameException extends RdqException {
  InvalidNameException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The field that holds it. */
  public String field() {
    return text("field");
  }
}
