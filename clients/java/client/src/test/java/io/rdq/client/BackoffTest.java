package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class BackoffTest {
  @Test
  void boundsDoubleUpToTheLargestAndBeginAgain() {
    List<Long> bounds = new ArrayList<>();
    Backoff backoff =
        new Backoff(
            Duration.ofSeconds(5),
            bound -> {
              bounds.add(Duration.ofNanos(bound).toMillis());
              return bound / 2;
            });

    for (int i = 0; i < 8; i++) {
      backoff.nextNanos();
    }
    backoff.reset();
    assertEquals(Duration.ofMillis(50).toNanos(), backoff.nextNanos());

    assertEquals(List.of(100L, 200L, 400L, 800L, 1600L, 3200L, 5000L, 5000L, 100L), bounds);
  }

  @Test
  void waitsAreDrawnFromZeroToTheBound() {
    Backoff backoff = new Backoff(Duration.ofMillis(100));
    for (int i = 0; i < 1_000; i++) {
      long wait = backoff.nextNanos();
      assertTrue(wait >= 0 && wait < Duration.ofMillis(100).toNanos(), "waited " + wait);
    }
  }

  @Test
  void aServerThatNamesATimeIsNotAskedBeforeIt() {
    Backoff backoff = new Backoff(Duration.ofSeconds(5), bound -> 7);
    long wait = Calls.waitNanos(backoff, Optional.of(Duration.ofSeconds(3)));
    assertEquals(Duration.ofSeconds(3).toNanos() + 7, wait);
  }
}
