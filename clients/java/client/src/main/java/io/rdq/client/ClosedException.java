package io.rdq.client;

/** The server is draining. Connect again. Reason {@code CLOSED}. */
public final class ClosedException extends RdqException {
  ClosedException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
