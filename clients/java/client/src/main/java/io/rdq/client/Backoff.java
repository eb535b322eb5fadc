package io.rdq.client;

import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.function.LongUnaryOperator;

/**
 * Full-jitter backoff: each wait is drawn evenly from zero to a bound that doubles, up to a largest
 * one. Belongs to one thread.
 */
final class Backoff {
  private static final Duration FIRST = Duration.ofMillis(100);

  private final long boundMaxNanos;
  private final LongUnaryOperator draw;
  private long boundNanos = FIRST.toNanos();

  Backoff(Duration boundMax) {
    this(boundMax, bound -> ThreadLocalRandom.current().nextLong(bound));
  }

  /** With a source of chance: from a bound to a number from zero up to it. */
  Backoff(Duration boundMax, LongUnaryOperator draw) {
    this.boundMaxNanos = boundMax.toNanos();
    this.draw = draw;
  }

  /** The next wait, in nanoseconds. */
  long nextNanos() {
    long wait = draw.applyAsLong(boundNanos);
    boundNanos = Math.min(boundNanos * 2, boundMaxNanos);
    return wait;
  }

  /** Begins again with the first bound. */
  void reset() {
    boundNanos = FIRST.toNanos();
  }
}
