package io.rdq.client;

/**
 * The page token is of a retired key or an older format. Start again with the first page. Reason
 * {@code STALE_CURSOR}.
 */
public final class StaleCursorException extends RdqException {
  StaleCursorException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
