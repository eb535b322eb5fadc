package io.rdq.client;

/** A name starts with the reserved {@code __rdq_}. Reason {@code RESERVED_NAME}. */
public final class ReservedNameException extends RdqException {
  ReservedNameException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The field that holds it. */
  public String field() {
    return text("field");
  }
}
