package io.rdq.client;

/** A schedule's spec or time zone is not one, or never comes. Reason {@code INVALID_SPEC}. */
public final class InvalidSpecException extends RdqException {
  InvalidSpecException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The field that holds it. */
  public String field() {
    return text("field");
  }
}
