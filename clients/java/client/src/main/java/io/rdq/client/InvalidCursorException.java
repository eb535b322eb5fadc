package io.rdq.client;

/** The page token is not one of this service's, or was changed. Reason {@code INVALID_CURSOR}. */
public final class InvalidCursorException extends RdqException {
  InvalidCursorException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
