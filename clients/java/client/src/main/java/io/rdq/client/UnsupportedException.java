package io.rdq.client;

/** The server's storage cannot do this. Reason {@code UNSUPPORTED}. */
public final class UnsupportedException extends RdqException {
  UnsupportedException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
