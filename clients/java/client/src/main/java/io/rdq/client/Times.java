package io.rdq.client;

import com.google.protobuf.Timestamp;
import java.time.Duration;
import java.time.Instant;

/** Between the times of the contract and those of Java. */
final class Times {
  private Times() {}

  static com.google.protobuf.Duration proto(Duration duration) {
    long seconds = duration.getSeconds();
    int nanos = duration.getNano();
    if (seconds < 0 && nanos > 0) {
      // The contract wants both parts of one sign.
      seconds += 1;
      nanos -= 1_000_000_000;
    }
    return com.google.protobuf.Duration.newBuilder().setSeconds(seconds).setNanos(nanos).build();
  }

  static Duration duration(com.google.protobuf.Duration proto) {
    return Duration.ofSeconds(proto.getSeconds(), proto.getNanos());
  }

  static Timestamp proto(Instant instant) {
    return Timestamp.newBuilder()
        .setSeconds(instant.getEpochSecond())
        .setNanos(instant.getNano())
        .build();
  }

  static Instant instant(Timestamp proto) {
    return Instant.ofEpochSecond(proto.getSeconds(), proto.getNanos());
  }

  /** In nanoseconds; about 292 years where it is more. */
  static long nanos(Duration duration) {
    try {
      return duration.toNanos();
    } catch (ArithmeticException tooLong) {
      return duration.isNegative() ? Long.MIN_VALUE : Long.MAX_VALUE;
    }
  }
}
