package io.rdq.client;

/** The call had no valid credentials. Reason {@code UNAUTHENTICATED}. */
public final class UnauthenticatedException extends RdqException {
  UnauthenticatedException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
