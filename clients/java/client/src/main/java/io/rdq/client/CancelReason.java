package io.rdq.client;

/** Why a handler is to stop. */
public enum CancelReason {
  /** Another worker may have the task now; nothing that this attempt sends counts. */
  LOST,
  /** The task was cancelled. */
  CANCELLED,
  /** The task expired. */
  EXPIRED,
  /** The queue's execution timeout is over. */
  TIMEOUT,
  /** The worker stops, and its grace is over; the task goes to another. */
  SHUTDOWN
}
