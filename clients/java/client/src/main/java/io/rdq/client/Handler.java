package io.rdq.client;

/** Runs tasks. */
@FunctionalInterface
public interface Handler {
  /**
   * Runs one attempt of a task. The thread is interrupted when the attempt is to stop; {@link
   * Claim#cancelReason} says why.
   *
   * @return the result as a {@code byte[]} or, in UTF-8, a {@code String}; null for none; an {@link
   *     Outcome} to say how it ended; or whatever the worker's {@link OutcomeMapper} understands
   * @throws Exception if the attempt failed; {@link PermanentException}, {@link
   *     RetryableException}, {@link RetryAfterException} and {@link SnoozeException} say more
   */
  Object handle(Claim claim) throws Exception;
}
