package io.rdq.client;

/** There is no such task. Reason {@code NOT_FOUND}. */
public final class TaskNotFoundException extends RdqException {
  TaskNotFoundException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The id that names no task. */
  public String taskId() {
    return text("task_id");
  }
}
