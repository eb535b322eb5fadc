package io.rdq.client;

/**
 * The request is larger than the server reads. Send less at once. Reason {@code MESSAGE_TOO_LARGE}.
 */
public final class MessageTooLargeException extends RdqException {
  MessageTooLargeException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The largest request that is read, in bytes; 0 if the server did not say. */
  public long limitBytes() {
    return number("limit_bytes");
  }
}
