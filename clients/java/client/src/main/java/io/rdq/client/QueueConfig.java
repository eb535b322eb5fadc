package io.rdq.client;

import com.google.protobuf.ProtocolStringList;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;

/**
 * The configuration of a queue. What is unset is inherited: from the server's file, then from its
 * defaults, then from the values named here. Immutable.
 */
public final class QueueConfig {
  private final io.rdq.v1.QueueConfig proto;

  private QueueConfig(io.rdq.v1.QueueConfig proto) {
    this.proto = proto;
  }

  static QueueConfig of(io.rdq.v1.QueueConfig proto) {
    return new QueueConfig(proto);
  }

  /** One in which nothing is set yet. */
  public static Builder builder() {
    return new Builder(io.rdq.v1.QueueConfig.newBuilder());
  }

  /** One that has what this has, to change. */
  public Builder toBuilder() {
    return new Builder(proto.toBuilder());
  }

  io.rdq.v1.QueueConfig toProto() {
    return proto;
  }

  /** How many attempts a task has, at least 1; 5 by default. */
  public OptionalInt maxAttempts() {
    return proto.getRetry().hasMaxAttempts()
        ? OptionalInt.of(proto.getRetry().getMaxAttempts())
        : OptionalInt.empty();
  }

  /** The wait after the first failure, above zero; 1 second by default. */
  public Optional<Duration> initialBackoff() {
    return proto.getRetry().hasInitialBackoff()
        ? Optional.of(Times.duration(proto.getRetry().getInitialBackoff()))
        : Optional.empty();
  }

  /** By what each further wait grows, 1 to 1,000; 2 by default. */
  public OptionalDouble multiplier() {
    return proto.getRetry().hasMultiplier()
        ? OptionalDouble.of(proto.getRetry().getMultiplier())
        : OptionalDouble.empty();
  }

  /** The longest wait, above zero; 10 minutes by default. */
  public Optional<Duration> maxBackoff() {
    return proto.getRetry().hasMaxBackoff()
        ? Optional.of(Times.duration(proto.getRetry().getMaxBackoff()))
        : Optional.empty();
  }

  /** By which part a wait is longer or shorter, 0 to 1; 0.2 by default. */
  public OptionalDouble jitter() {
    return proto.getRetry().hasJitter()
        ? OptionalDouble.of(proto.getRetry().getJitter())
        : OptionalDouble.empty();
  }

  /**
   * The lease where neither worker nor task names one, 10 milliseconds to 12 hours; 60 seconds by
   * default.
   */
  public Optional<Duration> lease() {
    return proto.getExecution().hasLease()
        ? Optional.of(Times.duration(proto.getExecution().getLease()))
        : Optional.empty();
  }

  /** No claim is held longer than this, above zero; no bound by default. */
  public Optional<Duration> executionTimeout() {
    return proto.getExecution().hasTimeout()
        ? Optional.of(Times.duration(proto.getExecution().getTimeout()))
        : Optional.empty();
  }

  /** Refuse every call under a lease that ran out; false by default. */
  public Optional<Boolean> strictLeases() {
    return proto.getExecution().hasStrictLeases()
        ? Optional.of(proto.getExecution().getStrictLeases())
        : Optional.empty();
  }

  /** The largest payload, 0 to 2 MiB; 1 MiB by default. */
  public OptionalLong maxPayloadBytes() {
    return proto.getLimits().hasMaxPayloadBytes()
        ? OptionalLong.of(proto.getLimits().getMaxPayloadBytes())
        : OptionalLong.empty();
  }

  /** How long succeeded tasks are kept, not negative; 24 hours by default. */
  public Optional<Duration> retentionSucceeded() {
    return proto.getRetention().hasSucceeded()
        ? Optional.of(Times.duration(proto.getRetention().getSucceeded()))
        : Optional.empty();
  }

  /** How long cancelled tasks are kept, not negative; 24 hours by default. */
  public Optional<Duration> retentionCancelled() {
    return proto.getRetention().hasCancelled()
        ? Optional.of(Times.duration(proto.getRetention().getCancelled()))
        : Optional.empty();
  }

  /** How long dead letters are kept, not negative; for ever by default. */
  public Optional<Duration> retentionDead() {
    return proto.getRetention().hasDead()
        ? Optional.of(Times.duration(proto.getRetention().getDead()))
        : Optional.empty();
  }

  /** What workers do with a version that they do not have; RUN_LATEST by default. */
  public Optional<VersionMismatch> versionMismatch() {
    io.rdq.v1.HandlerVersionMismatch value = proto.getHandler().getVersionMismatch();
    boolean isSet = value != io.rdq.v1.HandlerVersionMismatch.HANDLER_VERSION_MISMATCH_UNSPECIFIED;
    return isSet ? Optional.of(VersionMismatch.of(value)) : Optional.empty();
  }

  /** True stops claims, admission goes on; false by default. */
  public Optional<Boolean> paused() {
    return proto.hasPaused() ? Optional.of(proto.getPaused()) : Optional.empty();
  }

  /** Globs of error types that may run again. */
  public List<String> retryable() {
    return copy(proto.getClassification().getRetryableList());
  }

  /** Globs of error types that may not run again; they go before {@link #retryable}. */
  public List<String> permanent() {
    return copy(proto.getClassification().getPermanentList());
  }

  private static List<String> copy(ProtocolStringList list) {
    return List.copyOf(list);
  }

  /** What a configuration is to have. */
  public static final class Builder {
    private final io.rdq.v1.QueueConfig.Builder config;

    private Builder(io.rdq.v1.QueueConfig.Builder config) {
      this.config = config;
    }

    /** How many attempts a task has, at least 1; 5 by default. */
    public Builder maxAttempts(int value) {
      config.getRetryBuilder().setMaxAttempts(value);
      return this;
    }

    /** The wait after the first failure, above zero; 1 second by default. */
    public Builder initialBackoff(Duration value) {
      config.getRetryBuilder().setInitialBackoff(Times.proto(value));
      return this;
    }

    /** By what each further wait grows, 1 to 1,000; 2 by default. */
    public Builder multiplier(double value) {
      config.getRetryBuilder().setMultiplier(value);
      return this;
    }

    /** The longest wait, above zero; 10 minutes by default. */
    public Builder maxBackoff(Duration value) {
      config.getRetryBuilder().setMaxBackoff(Times.proto(value));
      return this;
    }

    /** By which part a wait is longer or shorter, 0 to 1; 0.2 by default. */
    public Builder jitter(double value) {
      config.getRetryBuilder().setJitter(value);
      return this;
    }

    /**
     * The lease where neither worker nor task names one, 10 milliseconds to 12 hours; 60 seconds by
     * default.
     */
    public Builder lease(Duration value) {
      config.getExecutionBuilder().setLease(Times.proto(value));
      return this;
    }

    /** No claim is held longer than this, above zero; no bound by default. */
    public Builder executionTimeout(Duration value) {
      config.getExecutionBuilder().setTimeout(Times.proto(value));
      return this;
    }

    /** Refuse every call under a lease that ran out; false by default. */
    public Builder strictLeases(boolean value) {
      config.getExecutionBuilder().setStrictLeases(value);
      return this;
    }

    /** The largest payload, 0 to 2 MiB; 1 MiB by default. */
    public Builder maxPayloadBytes(long value) {
      config.getLimitsBuilder().setMaxPayloadBytes(value);
      return this;
    }

    /** How long succeeded tasks are kept, not negative; 24 hours by default. */
    public Builder retentionSucceeded(Duration value) {
      config.getRetentionBuilder().setSucceeded(Times.proto(value));
      return this;
    }

    /** How long cancelled tasks are kept, not negative; 24 hours by default. */
    public Builder retentionCancelled(Duration value) {
      config.getRetentionBuilder().setCancelled(Times.proto(value));
      return this;
    }

    /** How long dead letters are kept, not negative; for ever by default. */
    public Builder retentionDead(Duration value) {
      config.getRetentionBuilder().setDead(Times.proto(value));
      return this;
    }

    /** What workers do with a version that they do not have; RUN_LATEST by default. */
    public Builder versionMismatch(VersionMismatch value) {
      config.getHandlerBuilder().setVersionMismatch(value.toProto());
      return this;
    }

    /** True stops claims, admission goes on; false by default. */
    public Builder paused(boolean value) {
      config.setPaused(value);
      return this;
    }

    /** Globs of error types that may run again: {@code *} is any text, {@code ?} one character. */
    public Builder retryable(String... globs) {
      config.getClassificationBuilder().clearRetryable().addAllRetryable(List.of(globs));
      return this;
    }

    /** Globs of error types that may not run again; they go before {@link #retryable}. */
    public Builder permanent(String... globs) {
      config.getClassificationBuilder().clearPermanent().addAllPermanent(List.of(globs));
      return this;
    }

    /** The configuration. */
    public QueueConfig build() {
      return new QueueConfig(config.build());
    }
  }
}
