package io.rdq.client;

/**
 * The claim token is superseded or was never issued; nothing changed. Drop the work. Reason {@code
 * STALE_CLAIM}.
 */
public final class StaleClaimException extends RdqException {
  StaleClaimException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** The task whose claim it was. */
  public String taskId() {
    return text("task_id");
  }

  /** {@code CANCELLED} or {@code EXPIRED} where that ended the task; empty otherwise. */
  public String detail() {
    return text("detail");
  }
}
