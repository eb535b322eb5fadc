package io.rdq.client;

import java.time.Instant;
import java.util.Optional;

/**
 * One attempt to run a task.
 *
 * @param number counts from 1 and grows for life, over redrives
 * @param startedAt when it was claimed, by the storage's clock
 * @param finishedAt when it ended, by the storage's clock
 * @param outcome how it ended
 * @param error why it failed
 * @param workerId which worker had it
 * @param foldedCount above 0, this record stands for so many attempts of a very long history
 */
public record Attempt(
    int number,
    Optional<Instant> startedAt,
    Optional<Instant> finishedAt,
    AttemptOutcome outcome,
    Optional<AttemptError> error,
    String workerId,
    int foldedCount) {
  static Attempt of(io.rdq.v1.Attempt proto) {
    return new Attempt(
        proto.getAttemptNo(),
        proto.hasStartedAt() ? Optional.of(Times.instant(proto.getStartedAt())) : Optional.empty(),
        proto.hasFinishedAt()
            ? Optional.of(Times.instant(proto.getFinishedAt()))
            : Optional.empty(),
        AttemptOutcome.of(proto.getOutcome()),
        proto.hasError() ? Optional.of(AttemptError.of(proto.getError())) : Optional.empty(),
        proto.getWorkerId(),
        proto.getFoldedCount());
  }
}
