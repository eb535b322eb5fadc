package io.rdq.client;

import java.util.function.Consumer;

/** One run of a handler, on a thread of the executor. */
final class Execution implements Runnable {
  private final HeldClaim held;
  private final Handler handler;
  private final OutcomeMapper mapper;
  private final Consumer<Outcome> whenEnded;

  /** With who hears how it ended, once and in any case. */
  Execution(HeldClaim held, Handler handler, OutcomeMapper mapper, Consumer<Outcome> whenEnded) {
    this.held = held;
    this.handler = handler;
    this.mapper = mapper;
    this.whenEnded = whenEnded;
  }

  @Override
  public void run() {
    // For a fault so deep that not even what happened can be said.
    Outcome outcome = Outcome.fail(Failure.OUTCOME_REFUSED, "the handler ended without an outcome");
    try {
      if (held.begin()) {
        Claim claim = new Claim(held);
        outcome = Tracing.attempt(claim, () -> outcome(claim));
      }
    } finally {
      held.end();
      whenEnded.accept(outcome);
    }
  }

  private Outcome outcome(Claim claim) {
    Object returned = null;
    Throwable thrown = null;
    try {
      returned = handler.handle(claim);
    } catch (Throwable error) {
      // Errors too: an attempt that found no memory, or no class, failed.
      thrown = error;
    }
    try {
      Outcome mapped = mapper.map(claim, returned, thrown);
      if (mapped != null) {
        return mapped;
      }
      return thrown == null ? Outcome.ofReturned(returned) : Outcome.ofThrown(thrown);
    } catch (Throwable error) {
      return Outcome.ofThrown(error);
    }
  }
}
