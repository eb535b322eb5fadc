package io.rdq.client;

/**
 * A lock was not had in time, or write conflicts outlasted the server's patience; nothing changed.
 * Repeat the call later. Reason {@code CONTENTION}.
 */
public final class ContentionException extends RdqException {
  ContentionException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
