package io.rdq.client;

import io.rdq.v1.AttemptError;
import java.io.PrintWriter;
import java.io.StringWriter;

/**
 * What the history will have of a failure.
 *
 * <p>The server cuts texts that are too long, and marks them; here they are cut so far that a
 * message of gigabytes is not sent.
 */
record Failure(String type, String message, String stack) {
  static final String UNROUTABLE = "rdq.Unroutable";
  static final String VERSION_MISMATCH = "rdq.VersionMismatch";
  static final String TIMEOUT = "rdq.Timeout";
  static final String OUTCOME_REFUSED = "rdq.OutcomeRefused";

  private static final int TYPE_CHARS_MAX = 1 << 10;
  private static final int MESSAGE_CHARS_MAX = 8 << 10;
  private static final int STACK_CHARS_MAX = 128 << 10;

  Failure {
    type = type == null ? "" : type;
    message = message == null ? "" : message;
  }

  static Failure of(Throwable thrown) {
    Throwable named = named(thrown);
    String type = named instanceof HasErrorType own ? own.errorType() : named.getClass().getName();
    boolean isBareWrapper =
        named != thrown && String.valueOf(thrown.getMessage()).equals(named.toString());
    String message = (isBareWrapper ? named : thrown).getMessage();
    StringWriter stack = new StringWriter();
    thrown.printStackTrace(new PrintWriter(stack));
    return new Failure(type, message, stack.toString());
  }

  AttemptError toProto() {
    return AttemptError.newBuilder()
        .setType(cut(type, TYPE_CHARS_MAX))
        .setMessage(cut(message, MESSAGE_CHARS_MAX))
        .setStack(cut(stack, STACK_CHARS_MAX))
        .build();
  }

  /** The error that gives the failure its type: what a wrapper wraps. */
  private static Throwable named(Throwable thrown) {
    boolean isWrapper =
        thrown instanceof PermanentException
            || thrown instanceof RetryableException
            || thrown instanceof RetryAfterException;
    boolean isNamed = thrown instanceof HasErrorType;
    return isWrapper && !isNamed && thrown.getCause() != null ? thrown.getCause() : thrown;
  }

  static String cut(String text, int charsMax) {
    if (text.length() <= charsMax) {
      return text;
    }
    boolean splitsPair = Character.isHighSurrogate(text.charAt(charsMax - 1));
    return text.substring(0, splitsPair ? charsMax - 1 : charsMax);
  }
}
