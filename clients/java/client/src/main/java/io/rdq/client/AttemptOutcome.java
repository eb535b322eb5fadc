package io.rdq.client;

/** How an attempt ended. */
public enum AttemptOutcome {
  /** Completed. */
  SUCCESS,
  /** Failed; may run again. */
  RETRYABLE_FAILURE,
  /** Failed; must not run again. */
  PERMANENT_FAILURE,
  /** Its lease ran out, and somebody else claimed the task. */
  LEASE_EXPIRED,
  /** Cancelled while in flight. */
  CANCELLED,
  /** An outcome that this client does not know. Treat it as a retryable failure. */
  UNKNOWN;

  static AttemptOutcome of(io.rdq.v1.AttemptOutcome proto) {
    return switch (proto) {
      case ATTEMPT_OUTCOME_SUCCESS -> SUCCESS;
      case ATTEMPT_OUTCOME_RETRYABLE_FAILURE -> RETRYABLE_FAILURE;
      case ATTEMPT_OUTCOME_PERMANENT_FAILURE -> PERMANENT_FAILURE;
      case ATTEMPT_OUTCOME_LEASE_EXPIRED -> LEASE_EXPIRED;
      case ATTEMPT_OUTCOME_CANCELLED -> CANCELLED;
      case ATTEMPT_OUTCOME_UNSPECIFIED, UNRECOGNIZED -> UNKNOWN;
    };
  }
}
