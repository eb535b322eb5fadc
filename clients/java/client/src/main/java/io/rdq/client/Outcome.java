package io.rdq.client;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;

/** How an attempt ended, for a handler or an {@link OutcomeMapper} that says so itself. */
public final class Outcome {
  /** What the server is told. */
  enum Kind {
    COMPLETE,
    FAIL,
    FAIL_RETRYABLE,
    DEAD_LETTER,
    RESCHEDULE,
    RELEASE
  }

  final Kind kind;
  final ByteString result;
  final Failure failure;
  final Duration delay;

  private Outcome(Kind kind, ByteString result, Failure failure, Duration delay) {
    this.kind = kind;
    this.result = result;
    this.failure = failure;
    this.delay = delay;
  }

  /** It succeeded, with nothing to keep. */
  public static Outcome complete() {
    return new Outcome(Kind.COMPLETE, ByteString.EMPTY, null, null);
  }

  /** It succeeded; the result, at most 64 KiB, is kept with the task. */
  public static Outcome complete(byte[] result) {
    return new Outcome(Kind.COMPLETE, ByteString.copyFrom(result), null, null);
  }

  /** It succeeded; the result, at most 64 KiB of UTF-8, is kept with the task. */
  public static Outcome complete(String result) {
    return complete(result.getBytes(StandardCharsets.UTF_8));
  }

  /** It failed; the queue decides whether it runs again. */
  public static Outcome fail(Throwable error) {
    return new Outcome(Kind.FAIL, null, Failure.of(error), null);
  }

  /** It failed, by a stable type such as {@code http.503}; the queue decides as above. */
  public static Outcome fail(String errorType, String message) {
    return new Outcome(Kind.FAIL, null, new Failure(errorType, message, ""), null);
  }

  /** It failed and may run again, whatever the queue's classification says. */
  public static Outcome retryable(Throwable error) {
    return new Outcome(Kind.FAIL_RETRYABLE, null, Failure.of(error), null);
  }

  /** It failed, and the task is dead. */
  public static Outcome permanent(Throwable error) {
    return new Outcome(Kind.DEAD_LETTER, null, Failure.of(error), null);
  }

  /** It failed by a stable type, and the task is dead. */
  public static Outcome permanent(String errorType, String message) {
    return new Outcome(Kind.DEAD_LETTER, null, new Failure(errorType, message, ""), null);
  }

  /** It failed, and the task is due again after a delay. */
  public static Outcome retryAfter(Duration delay, Throwable error) {
    return new Outcome(
        Kind.RESCHEDULE, null, Failure.of(error), Objects.requireNonNull(delay, "delay"));
  }

  /** The task is due again after a delay, and no attempt is spent. */
  public static Outcome snooze(Duration delay) {
    return new Outcome(Kind.RELEASE, null, null, Objects.requireNonNull(delay, "delay"));
  }

  /** The claim is given back, due at once, and no attempt is spent. */
  static Outcome release() {
    return new Outcome(Kind.RELEASE, null, null, null);
  }

  /** What a worker makes of what a handler returned. */
  static Outcome ofReturned(Object returned) {
    if (returned == null) {
      return complete();
    } else if (returned instanceof byte[] bytes) {
      return complete(bytes);
    } else if (returned instanceof CharSequence text) {
      return complete(text.toString());
    } else if (returned instanceof Outcome outcome) {
      return outcome;
    }
    return fail(
        Failure.OUTCOME_REFUSED,
        "the handler returned a "
            + returned.getClass().getName()
            + ", which is no byte[], String or Outcome; an outcome mapper can turn it into one");
  }

  /** What a worker makes of what a handler threw. */
  static Outcome ofThrown(Throwable thrown) {
    if (thrown instanceof PermanentException) {
      return permanent(thrown);
    } else if (thrown instanceof RetryableException) {
      return retryable(thrown);
    } else if (thrown instanceof RetryAfterException after) {
      return retryAfter(after.delay(), thrown);
    } else if (thrown instanceof SnoozeException snooze) {
      return snooze(snooze.delay());
    }
    return fail(thrown);
  }
}
