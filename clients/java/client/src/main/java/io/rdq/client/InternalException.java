package io.rdq.client;

/**
 * A fault of the service; its log has the detail under {@link #correlationId}. Reason {@code
 * INTERNAL}.
 */
public final class InternalException extends RdqException {
  InternalException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** What finds the fault in the server's log. */
  public String correlationId() {
    return text("correlation_id");
  }
}
