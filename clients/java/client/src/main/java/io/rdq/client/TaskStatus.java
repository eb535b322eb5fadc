package io.rdq.client;

/** Where a task stands. */
public enum TaskStatus {
  /** Waits for its due time or for a worker. */
  PENDING,
  /** Claimed. Its lease may have run out already; then it is due again. */
  IN_FLIGHT,
  /** A worker completed it. */
  SUCCEEDED,
  /** Rests as a dead letter until it is redriven. */
  DEAD,
  /** Cancelled. */
  CANCELLED,
  /** A status that this client does not know. Treat it as not finished. */
  UNKNOWN;

  static TaskStatus of(io.rdq.v1.TaskStatus proto) {
    return switch (proto) {
      case TASK_STATUS_PENDING -> PENDING;
      case TASK_STATUS_IN_FLIGHT -> IN_FLIGHT;
      case TASK_STATUS_SUCCEEDED -> SUCCEEDED;
      case TASK_STATUS_DEAD -> DEAD;
      case TASK_STATUS_CANCELLED -> CANCELLED;
      case TASK_STATUS_UNSPECIFIED, UNRECOGNIZED -> UNKNOWN;
    };
  }

  io.rdq.v1.TaskStatus toProto() {
    return switch (this) {
      case PENDING -> io.rdq.v1.TaskStatus.TASK_STATUS_PENDING;
      case IN_FLIGHT -> io.rdq.v1.TaskStatus.TASK_STATUS_IN_FLIGHT;
      case SUCCEEDED -> io.rdq.v1.TaskStatus.TASK_STATUS_SUCCEEDED;
      case DEAD -> io.rdq.v1.TaskStatus.TASK_STATUS_DEAD;
      case CANCELLED -> io.rdq.v1.TaskStatus.TASK_STATUS_CANCELLED;
      case UNKNOWN -> throw new IllegalArgumentException("UNKNOWN is no status to ask for");
    };
  }
}
