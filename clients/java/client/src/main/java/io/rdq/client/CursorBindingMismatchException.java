package io.rdq.client;

/**
 * The page token belongs to another caller, list or filter. Reason {@code CURSOR_BINDING_MISMATCH}.
 */
public final class CursorBindingMismatchException extends RdqException {
  CursorBindingMismatchException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
