package io.rdq.client;

import java.util.function.Consumer;

/** One run of a handler, on a thread of the executor. */
final class Execution implements Runnable {
  private final Claim claim;
  private final Handler handler;
  private final OutcomeMapper mapper;
  private final Consumer<Outcome> whenEnded;

  /** With who hears how it ended, once and in any case. */
  Execution(Claim claim, Handler handler, OutcomeMapper mapper, Consumer<Outcome> whenEnded) {
    this.claim = claim;
    this.handler = handler;
    this.mapper = mapper;
    this.whenEnded = whenEnded;
  }

  @Override
  public void run() {
    // For a fault so deep that not even what happened can be said.
    Outcome outcome = Outcome.fail(Failure.OUTCOME_REFUSED, "the handler ended without an outcome");
    try {
      if (claim.begin()) {
        Job job = new Job(claim);
        outcome = Tracing.attempt(job, () -> outcome(job));
      }
    } finally {
      claim.end();
      whenEnded.accept(outcome);
    }
  }

  private Outcome outcome(Job job) {
    Object returned = null;
    Throwable thrown = null;
    try {
      returned = handler.handle(job);
    } catch (Throwable error) {
      // Errors too: an attempt that found no memory, or no class, failed.
      thrown = error;
    }
    try {
      Outcome mapped = mapper.map(job, returned, thrown);
      if (mapped != null) {
        return mapped;
      }
      return thrown == null ? Outcome.ofReturned(returned) : Outcome.ofThrown(thrown);
    } catch (Throwable error) {
      return Outcome.ofThrown(error);
    }
  }
}
