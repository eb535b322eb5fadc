package io.rdq.client;

/** The task's id is taken in another queue. Reason {@code ID_CONFLICT}. */
public final class IdConflictException extends RdqException {
  IdConflictException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The id that is taken. */
  public String taskId() {
    return text("task_id");
  }
}
