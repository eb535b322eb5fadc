package io.rdq.client;

/** A payload, or another part with a limit, is too large. Reason {@code PAYLOAD_TOO_LARGE}. */
public final class PayloadTooLargeException extends RdqException {
  PayloadTooLargeException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The part that is too large. */
  public String field() {
    return text("field");
  }

  /** The largest size that is taken, in bytes; 0 if the server did not say. */
  public long limitBytes() {
    return number("limit_bytes");
  }

  /** The size it has, in bytes; 0 if the server did not say. */
  public long sizeBytes() {
    return number("size_bytes");
  }
}
