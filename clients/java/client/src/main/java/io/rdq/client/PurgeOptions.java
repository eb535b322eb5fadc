package io.rdq.client;

import java.util.function.LongConsumer;

/** How to purge dead letters. Immutable; each setter gives a new one. */
public final class PurgeOptions {
  final io.rdq.v1.PurgeRequest proto;
  final LongConsumer onCount;

  private PurgeOptions(io.rdq.v1.PurgeRequest.Builder proto, LongConsumer onCount) {
    this.proto = proto.build();
    this.onCount = onCount;
  }

  /** For good. */
  public static PurgeOptions defaults() {
    return new PurgeOptions(io.rdq.v1.PurgeRequest.newBuilder(), count -> {});
  }

  /** Count them, and change nothing. */
  public PurgeOptions dryRun() {
    return new PurgeOptions(proto.toBuilder().setDryRun(true), onCount);
  }

  /** Hears how many are done so far, each time the server says so. */
  public PurgeOptions onCount(LongConsumer hears) {
    return new PurgeOptions(proto.toBuilder(), hears);
  }
}
