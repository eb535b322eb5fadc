package io.rdq.client;

/** The credentials do not grant this. Reason {@code PERMISSION_DENIED}. */
public final class PermissionDeniedException extends RdqException {
  PermissionDeniedException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
