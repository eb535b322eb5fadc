package io.rdq.client;

import java.time.Instant;

/** Matches dead letters: all that is set must hold. Immutable; each setter gives a new one. */
public final class DlqFilter {
  private final io.rdq.v1.DlqFilter proto;

  private DlqFilter(io.rdq.v1.DlqFilter.Builder proto) {
    this.proto = proto.build();
  }

  /** Matches all, until something is set. */
  public static DlqFilter any() {
    return new DlqFilter(io.rdq.v1.DlqFilter.newBuilder());
  }

  /** The exact error type of the final attempt. */
  public DlqFilter errorType(String type) {
    return new DlqFilter(proto.toBuilder().setErrorType(type));
  }

  /** The exact handler. */
  public DlqFilter handlerRef(String handlerRef) {
    return new DlqFilter(proto.toBuilder().setHandlerRef(handlerRef));
  }

  /** Dead since this instant, inclusive. */
  public DlqFilter deadFrom(Instant from) {
    return new DlqFilter(proto.toBuilder().setDeadLetteredFrom(Times.proto(from)));
  }

  /** Dead before this instant, exclusive. */
  public DlqFilter deadBefore(Instant before) {
    return new DlqFilter(proto.toBuilder().setDeadLetteredTo(Times.proto(before)));
  }

  io.rdq.v1.DlqFilter toProto() {
    return proto;
  }
}
