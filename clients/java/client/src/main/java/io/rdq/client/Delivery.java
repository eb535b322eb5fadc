package io.rdq.client;

import io.rdq.v1.Attempt;
import io.rdq.v1.AttemptOutcome;
import io.rdq.v1.CompleteRequest;
import io.rdq.v1.DeadLetterRequest;
import io.rdq.v1.FailRequest;
import io.rdq.v1.ReleaseRequest;
import io.rdq.v1.RescheduleRequest;
import io.rdq.v1.Resolution;

/** An outcome on its way, until it is answered. Belongs to the loop's thread. */
final class Delivery {
  final HeldClaim claim;
  final Backoff backoff = new Backoff(Calls.BACKOFF_MAX);
  Resolution resolution;

  /** Whether an earlier sending had no answer, and may have been done. */
  boolean isMaybeDone;

  /** Whether it is sent in a message of its own, since one with others was refused. */
  boolean goesAlone;

  /** Whether this stands in for an outcome that was refused. */
  boolean isSubstitute;

  /** Not to be sent before; on the loop's clock. */
  long notBeforeNanos;

  Delivery(HeldClaim claim, Resolution resolution) {
    this.claim = claim;
    this.resolution = resolution;
  }

  /** What the server is told of an outcome. */
  static Resolution resolution(HeldClaim claim, Outcome outcome) {
    Resolution.Builder resolution = Resolution.newBuilder();
    String id = claim.taskId();
    switch (outcome.kind) {
      case COMPLETE ->
          resolution.setComplete(
              CompleteRequest.newBuilder()
                  .setId(id)
                  .setClaimToken(claim.token)
                  .setResult(outcome.result));
      case FAIL, FAIL_RETRYABLE ->
          resolution.setFail(
              FailRequest.newBuilder()
                  .setId(id)
                  .setClaimToken(claim.token)
                  .setAttempt(attempt(outcome)));
      case DEAD_LETTER ->
          resolution.setDeadLetter(
              DeadLetterRequest.newBuilder()
                  .setId(id)
                  .setClaimToken(claim.token)
                  .setAttempt(attempt(outcome)));
      case RESCHEDULE ->
          resolution.setReschedule(
              RescheduleRequest.newBuilder()
                  .setId(id)
                  .setClaimToken(claim.token)
                  .setAttempt(attempt(outcome))
                  .setDelay(Times.proto(outcome.delay)));
      case RELEASE -> {
        ReleaseRequest.Builder release =
            ReleaseRequest.newBuilder().setId(id).setClaimToken(claim.token);
        if (outcome.delay != null) {
          release.setDelay(Times.proto(outcome.delay));
        }
        resolution.setRelease(release);
      }
      default -> throw new IllegalStateException("no such outcome: " + outcome.kind);
    }
    return resolution.build();
  }

  private static Attempt attempt(Outcome outcome) {
    Attempt.Builder attempt = Attempt.newBuilder().setError(outcome.failure.toProto());
    if (outcome.kind == Outcome.Kind.FAIL_RETRYABLE) {
      attempt.setOutcome(AttemptOutcome.ATTEMPT_OUTCOME_RETRYABLE_FAILURE);
    }
    return attempt.build();
  }
}
