package io.rdq.client;

/** What a worker does with a task whose handler version it does not have. */
public enum VersionMismatch {
  /** Run the version at hand. */
  RUN_LATEST,
  /** Make it a dead letter, {@code rdq.VersionMismatch}. */
  DEAD_LETTER;

  io.rdq.v1.HandlerVersionMismatch toProto() {
    return this == DEAD_LETTER
        ? io.rdq.v1.HandlerVersionMismatch.HANDLER_VERSION_MISMATCH_DEAD_LETTER
        : io.rdq.v1.HandlerVersionMismatch.HANDLER_VERSION_MISMATCH_RUN_LATEST;
  }

  /** What the contract says; one that is not known is to be treated as running the latest. */
  static VersionMismatch of(io.rdq.v1.HandlerVersionMismatch proto) {
    return proto == io.rdq.v1.HandlerVersionMismatch.HANDLER_VERSION_MISMATCH_DEAD_LETTER
        ? DEAD_LETTER
        : RUN_LATEST;
  }
}
