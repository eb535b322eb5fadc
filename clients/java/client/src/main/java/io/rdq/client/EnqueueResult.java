package io.rdq.client;

import java.util.Optional;

/** What became of one task of many: an admission or an error. */
public final class EnqueueResult {
  private final String id;
  private final Admission admission;
  private final RdqException error;

  private EnqueueResult(String id, Admission admission, RdqException error) {
    this.id = id;
    this.admission = admission;
    this.error = error;
  }

  static EnqueueResult admitted(Admission admission) {
    return new EnqueueResult(admission.id(), admission, null);
  }

  static EnqueueResult refused(String id, RdqException error) {
    return new EnqueueResult(id, null, error);
  }

  /** The task's id, the caller's or the client's, whether it was admitted or not. */
  public String id() {
    return id;
  }

  /** Whether the task is stored. */
  public boolean isAdmitted() {
    return admission != null;
  }

  /** Why the task was refused; empty if it was not. */
  public Optional<RdqException> error() {
    return Optional.ofNullable(error);
  }

  /**
   * The admission.
   *
   * @throws RdqException if the task was refused
   */
  public Admission orThrow() {
    if (error != null) {
      throw error;
    }
    return admission;
  }
}
