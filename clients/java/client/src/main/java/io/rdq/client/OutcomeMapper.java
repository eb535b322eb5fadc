package io.rdq.client;

/** Decides how an attempt ended, from what its handler returned or threw. */
@FunctionalInterface
public interface OutcomeMapper {
  /**
   * Sees each attempt whose handler ended by itself.
   *
   * @param returned what the handler returned; null if it threw
   * @param thrown what the handler threw; null if it returned
   * @return how the attempt ended, or null to leave it to the worker
   * @throws Exception if the attempt failed by this
   */
  Outcome map(Claim claim, Object returned, Throwable thrown) throws Exception;
}
