package io.rdq.client;

/**
 * The ledger has a record of another request under this scope; nothing changed. Reason {@code
 * MUTATION_CONFLICT}.
 */
public final class MutationConflictException extends RdqException {
  MutationConflictException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }

  /** On whose behalf the mutation is. */
  public String subject() {
    return text("subject");
  }

  /** What the mutation does. */
  public String operation() {
    return text("operation");
  }

  /** Which time it does so. */
  public String key() {
    return text("key");
  }
}
