package io.rdq.client;

import java.time.Instant;
import java.util.Optional;

/**
 * A queue and its configuration.
 *
 * @param name the queue
 * @param config what is stored; empty if nothing is
 * @param effective what is in force: what is stored, over the server's file, over its defaults
 * @param updatedAt when it was stored; empty if it is not
 */
public record Queue(
    String name, Optional<QueueConfig> config, QueueConfig effective, Optional<Instant> updatedAt) {
  static Queue of(io.rdq.v1.Queue proto) {
    return new Queue(
        proto.getName(),
        proto.hasConfig() ? Optional.of(QueueConfig.of(proto.getConfig())) : Optional.empty(),
        QueueConfig.of(proto.getEffective()),
        proto.hasUpdatedAt() ? Optional.of(Times.instant(proto.getUpdatedAt())) : Optional.empty());
  }
}
