package io.rdq.client;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;

/** A task as the server has it. Immutable. */
public final class Task {
  private final io.rdq.v1.Task proto;

  Task(io.rdq.v1.Task proto) {
    this.proto = proto;
  }

  /** Names the task for life. */
  public String id() {
    return proto.getId();
  }

  /** The queue. */
  public String queue() {
    return proto.getQueue();
  }

  /** Which handler runs it. */
  public String handlerRef() {
    return proto.getHandlerRef();
  }

  /** The version of the handler that the producer meant. */
  public Optional<String> handlerVersion() {
    return proto.hasHandlerVersion() ? Optional.of(proto.getHandlerVersion()) : Optional.empty();
  }

  /** What the handler gets; a copy. */
  public byte[] payload() {
    return proto.getPayload().toByteArray();
  }

  /** What the payload is; empty if the producer did not say. */
  public String contentType() {
    return proto.getPayloadContentType();
  }

  /** The headers. */
  public Map<String, String> headers() {
    return proto.getHeadersMap();
  }

  /** Higher goes first. */
  public int priority() {
    return proto.getPriority();
  }

  /** How many attempts it has; empty where the queue decides. */
  public OptionalInt maxAttempts() {
    return proto.hasMaxAttempts() ? OptionalInt.of(proto.getMaxAttempts()) : OptionalInt.empty();
  }

  /** The lease of its claims; empty where the queue decides. */
  public Optional<Duration> lease() {
    return proto.hasLease() ? Optional.of(Times.duration(proto.getLease())) : Optional.empty();
  }

  /** The backoff after its first failure; empty where the queue decides. */
  public Optional<Duration> initialBackoff() {
    return proto.hasInitialBackoff()
        ? Optional.of(Times.duration(proto.getInitialBackoff()))
        : Optional.empty();
  }

  /** How long it is kept as a dead letter; empty where the queue decides. */
  public Optional<Duration> retentionDead() {
    return proto.hasRetentionDead()
        ? Optional.of(Times.duration(proto.getRetentionDead()))
        : Optional.empty();
  }

  /** Where it stands. */
  public TaskStatus status() {
    return TaskStatus.of(proto.getStatus());
  }

  /** Attempts spent since the last redrive. */
  public int attemptCount() {
    return proto.getAttemptCount();
  }

  /** How often it was redriven. */
  public int redriveCount() {
    return proto.getRedriveCount();
  }

  /** How many of its leases ran out and were claimed by another. */
  public int leaseExpiredCount() {
    return proto.getLeaseExpiredCount();
  }

  /** The last progress that a handler set; a copy, empty if none did. */
  public byte[] progress() {
    return proto.getProgress().toByteArray();
  }

  /** What the handler returned; a copy, empty if nothing. */
  public byte[] result() {
    return proto.getResult().toByteArray();
  }

  /** When the live claim began. */
  public Optional<Instant> claimedAt() {
    return instant(proto.hasClaimedAt(), proto.getClaimedAt());
  }

  /** Which worker holds it; empty if none does. */
  public String claimedBy() {
    return proto.getClaimedBy();
  }

  /** When it is due. */
  public Optional<Instant> nextAttemptAt() {
    return instant(proto.hasNextAttemptAt(), proto.getNextAttemptAt());
  }

  /** When the live claim's lease ends. */
  public Optional<Instant> leaseExpiresAt() {
    return instant(proto.hasLeaseExpiresAt(), proto.getLeaseExpiresAt());
  }

  /** When it is dead unless finished. */
  public Optional<Instant> expiresAt() {
    return instant(proto.hasExpiresAt(), proto.getExpiresAt());
  }

  /** When it came into being. */
  public Optional<Instant> createdAt() {
    return instant(proto.hasCreatedAt(), proto.getCreatedAt());
  }

  /** When it finished. */
  public Optional<Instant> finishedAt() {
    return instant(proto.hasFinishedAt(), proto.getFinishedAt());
  }

  /**
   * Its history, oldest first. A claim's is without stacks and details, a list's is empty unless it
   * was asked for.
   */
  public List<Attempt> attempts() {
    return proto.getAttemptsList().stream().map(Attempt::of).toList();
  }

  /** The envelope as the contract has it, with fields that this client does not know too. */
  public io.rdq.v1.Task toProto() {
    return proto;
  }

  /** Names the task, and shows nothing of what it carries. */
  @Override
  public String toString() {
    return "Task{id=" + id() + ", queue=" + queue() + ", status=" + status() + "}";
  }

  private static Optional<Instant> instant(boolean isSet, com.google.protobuf.Timestamp value) {
    return isSet ? Optional.of(Times.instant(value)) : Optional.empty();
  }
}
