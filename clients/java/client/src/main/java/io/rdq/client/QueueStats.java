package io.rdq.client;

import java.time.Duration;
import java.util.Optional;

/**
 * How many tasks a queue has, at one moment by the storage's clock.
 *
 * @param queue the queue
 * @param pending those that wait: {@code ready} and {@code delayed}
 * @param ready those that are due
 * @param delayed those that are due later
 * @param inFlight those that are claimed, with a lease that ran out or not
 * @param lapsed claimed ones whose lease ran out
 * @param dlqDepth dead letters
 * @param succeeded those that succeeded and are kept
 * @param cancelled those that were cancelled and are kept
 * @param oldestPendingAge how long the oldest due task has been due
 */
public record QueueStats(
    String queue,
    long pending,
    long ready,
    long delayed,
    long inFlight,
    long lapsed,
    long dlqDepth,
    long succeeded,
    long cancelled,
    Optional<Duration> oldestPendingAge) {
  static QueueStats of(io.rdq.v1.QueueStats proto) {
    return new QueueStats(
        proto.getQueue(),
        proto.getPending(),
        proto.getReady(),
        proto.getDelayed(),
        proto.getInFlight(),
        proto.getLapsed(),
        proto.getDlqDepth(),
        proto.getSucceeded(),
        proto.getCancelled(),
        proto.hasOldestPendingAge()
            ? Optional.of(Times.duration(proto.getOldestPendingAge()))
            : Optional.empty());
  }
}
