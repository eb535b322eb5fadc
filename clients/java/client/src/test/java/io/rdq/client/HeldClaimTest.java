package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.rdq.v1.ClaimedTask;
import io.rdq.v1.Task;
import java.time.Duration;
import java.time.Instant;
import org.junit.jupiter.api.Test;

class HeldClaimTest {
  private static HeldClaim claim(Duration lease, Duration remaining) {
    Instant claimed = Instant.parse("2030-01-01T00:00:00Z");
    Task task =
        Task.newBuilder()
            .setId("t")
            .setClaimedAt(Times.proto(claimed))
            .setLeaseExpiresAt(Times.proto(claimed.plus(lease)))
            .build();
    ClaimedTask proto =
        ClaimedTask.newBuilder().setTask(task).setLeaseRemaining(Times.proto(remaining)).build();
    return new HeldClaim(proto, 0, 0);
  }

  private static long millis(long nanos) {
    return Duration.ofNanos(nanos).toMillis();
  }

  @Test
  void theMarginIsATenthOrAHundredMillisecondsButNeverMoreThanHalf() {
    for (long[] leaseAndMargin :
        new long[][] {{60_000, 6_000}, {1_000, 100}, {500, 100}, {200, 100}, {100, 50}, {10, 5}}) {
      long lease = Duration.ofMillis(leaseAndMargin[0]).toNanos();
      assertEquals(
          leaseAndMargin[1], millis(HeldClaim.marginNanos(lease)), "of " + leaseAndMargin[0]);
    }
  }

  @Test
  void aLeaseIsExtendedAThirdAfterItBegan() {
    HeldClaim fresh = claim(Duration.ofSeconds(30), Duration.ofSeconds(30));
    assertEquals(10_000, millis(fresh.heartbeatAtNanos));
    assertEquals(27_000, millis(fresh.startByNanos));
    HeldClaim late = claim(Duration.ofSeconds(30), Duration.ofSeconds(25));
    assertEquals(5_000, millis(late.heartbeatAtNanos));
    HeldClaim veryLate = claim(Duration.ofSeconds(30), Duration.ofSeconds(2));
    assertEquals(0, veryLate.heartbeatAtNanos);
    assertTrue(veryLate.startByNanos < 0);
  }

  @Test
  void aHandlerIsStoppedALittleBeforeItsTimeIsOver() {
    assertEquals(900, millis(HeldClaim.timeoutNanos(Duration.ofSeconds(1))));
    assertEquals(59_000, millis(HeldClaim.timeoutNanos(Duration.ofMinutes(1))));
    ClaimedTask late =
        claim(Duration.ofSeconds(30), Duration.ofSeconds(25)).proto.toBuilder()
            .setExecutionTimeout(Times.proto(Duration.ofSeconds(30)))
            .build();
    assertEquals(
        24_000, millis(new HeldClaim(late, 0, 0).timeoutAtNanos), "of the claim, not arrival");
  }

  @Test
  void aStoppedClaimDoesNotBeginAndALateInterruptHarmsNobody() {
    HeldClaim stopped = claim(Duration.ofSeconds(30), Duration.ofSeconds(30));
    stopped.cancel(CancelReason.CANCELLED, Runnable::run);
    stopped.cancel(CancelReason.SHUTDOWN, Runnable::run);
    assertFalse(stopped.begin());
    assertEquals(CancelReason.CANCELLED, stopped.reason());
    assertEquals(CancelReason.CANCELLED, stopped.cancellation.join());

    HeldClaim running = claim(Duration.ofSeconds(30), Duration.ofSeconds(30));
    assertTrue(running.begin());
    running.cancel(CancelReason.LOST, Runnable::run);
    running.end();
    assertFalse(Thread.currentThread().isInterrupted());
    HeldClaim ended = claim(Duration.ofSeconds(30), Duration.ofSeconds(30));
    assertTrue(ended.begin());
    ended.end();
    ended.cancel(CancelReason.LOST, Runnable::run);
    assertFalse(Thread.currentThread().isInterrupted());
  }

  @Test
  void progressIsSentUntilItIsStored() {
    HeldClaim claim = claim(Duration.ofSeconds(30), Duration.ofSeconds(30));
    assertFalse(claim.heartbeat().request().hasProgress());
    claim.setProgress(new byte[] {1});
    Heartbeat first = claim.heartbeat();
    claim.setProgress(new byte[0]);
    claim.progressDone(first.progressNumber());
    assertTrue(claim.hasNewProgress(), "what was set meanwhile is not stored");
    Heartbeat second = claim.heartbeat();
    assertTrue(second.request().hasProgress() && second.request().getProgress().isEmpty());
    claim.progressDone(second.progressNumber());
    assertFalse(claim.hasNewProgress());
    assertFalse(claim.heartbeat().request().hasProgress());
  }
}
