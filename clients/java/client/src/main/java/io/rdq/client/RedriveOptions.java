package io.rdq.client;

import java.time.Duration;
import java.util.function.LongConsumer;

/** How to redrive dead letters. Immutable; each setter gives a new one. */
public final class RedriveOptions {
  final io.rdq.v1.RedriveRequest proto;
  final LongConsumer onCount;

  private RedriveOptions(io.rdq.v1.RedriveRequest.Builder proto, LongConsumer onCount) {
    this.proto = proto.build();
    this.onCount = onCount;
  }

  /** All at once, at the server's own pace. */
  public static RedriveOptions defaults() {
    return new RedriveOptions(io.rdq.v1.RedriveRequest.newBuilder(), count -> {});
  }

  /** Count them, and change nothing. */
  public RedriveOptions dryRun() {
    return new RedriveOptions(proto.toBuilder().setDryRun(true), onCount);
  }

  /** Spread their due times evenly over this. Not together with {@link #ratePerSecond}. */
  public RedriveOptions spreadOver(Duration duration) {
    return new RedriveOptions(proto.toBuilder().setSpreadOver(Times.proto(duration)), onCount);
  }

  /** Space their due times to so many tasks a second. Not together with {@link #spreadOver}. */
  public RedriveOptions ratePerSecond(double tasks) {
    return new RedriveOptions(proto.toBuilder().setRatePerSecond(tasks), onCount);
  }

  /** Hears how many are done so far, each time the server says so. */
  public RedriveOptions onCount(LongConsumer hears) {
    return new RedriveOptions(proto.toBuilder(), hears);
  }
}
