package io.rdq.client;

/**
 * Too many calls or streams at once; nothing changed. Repeat after {@link #retryAfter}. Reason
 * {@code OVERLOADED}.
 */
public final class OverloadedException extends RdqException {
  OverloadedException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
