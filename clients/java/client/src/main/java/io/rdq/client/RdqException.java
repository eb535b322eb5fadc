package io.rdq.client;

import io.grpc.Status;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;

/**
 * A call, or one item of a batch, that was refused or had no answer.
 *
 * <p>Each reason that rdq gives has a subtype. An error without a reason, such as a server that
 * cannot be reached, or with one that is newer than this client, is of this type itself: decide by
 * {@link #code} then.
 */
public class RdqException extends RuntimeException {
  private final Refusal refusal;
  private boolean outcomeUnknown;
  private long partialCount = -1;

  RdqException(Refusal refusal, Throwable cause) {
    super(refusal.message(), cause);
    this.refusal = refusal;
    this.outcomeUnknown =
        refusal.reason().isEmpty()
            ? isWithoutAnswer(refusal.code())
            : refusal.metadata().getOrDefault("outcome_unknown", "").equals("true");
  }

  /**
   * What a stub of {@link RdqClient#stub} threw, as an exception of this client: of the subtype of
   * its reason.
   */
  public static RdqException of(Throwable thrown) {
    return Errors.of(thrown);
  }

  /** The gRPC status code. */
  public final Status.Code code() {
    return refusal.code();
  }

  /** The reason, such as {@code STALE_CLAIM}; empty if the error has none. */
  public final String reason() {
    return refusal.reason();
  }

  /** What the message mentions, by name, such as {@code task_id}. */
  public final Map<String, String> metadata() {
    return refusal.metadata();
  }

  /**
   * Whether the change may have happened all the same: the server says so, or the answer was lost
   * on its way.
   */
  public final boolean outcomeUnknown() {
    return outcomeUnknown;
  }

  /** Whether the same call may succeed later. The client has retried it already. */
  public final boolean isRetryable() {
    return switch (code()) {
      case UNAVAILABLE, DEADLINE_EXCEEDED -> true;
      case ABORTED -> reason().equals("CONTENTION");
      case RESOURCE_EXHAUSTED -> reason().equals("OVERLOADED");
      default -> false;
    };
  }

  /** Not to be repeated before this has passed; empty if the server did not say. */
  public final Optional<Duration> retryAfter() {
    return refusal.retryAfter();
  }

  /**
   * How many dead letters a redrive or a purge had done, by its last message, when it failed; empty
   * for other calls and where it failed before its first message.
   */
  public final OptionalLong partialCount() {
    return partialCount < 0 ? OptionalLong.empty() : OptionalLong.of(partialCount);
  }

  final RdqException withPartialCount(long count) {
    partialCount = count;
    return this;
  }

  /** The same, after an earlier try of the call that may have changed something. */
  final RdqException withOutcomeUnknown() {
    outcomeUnknown = true;
    return this;
  }

  /** A value of the metadata; empty if it is missing. */
  final String text(String key) {
    return metadata().getOrDefault(key, "");
  }

  /** A number of the metadata; 0 if it is missing. */
  final long number(String key) {
    try {
      return Long.parseLong(text(key));
    } catch (NumberFormatException missing) {
      return 0;
    }
  }

  /** Whether a status without a reason can stem from a call whose answer did not come. */
  private static boolean isWithoutAnswer(Status.Code code) {
    return switch (code) {
      case UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED, UNKNOWN, INTERNAL -> true;
      default -> false;
    };
  }
}
