package io.rdq.client;

/** The call's deadline passed; a change may have happened. Reason {@code DEADLINE_EXCEEDED}. */
public final class DeadlineExceededException extends RdqException {
  DeadlineExceededException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
