package io.rdq.client;

/**
 * A task that is stored.
 *
 * @param id the task's id, the caller's or the client's
 * @param created true if this call admitted it, false if it was there already; a call that was
 *     repeated after a lost answer says false although it was the one
 * @param status where the task stands now
 */
public record Admission(String id, boolean created, TaskStatus status) {
  static Admission of(io.rdq.v1.EnqueueResponse proto) {
    return new Admission(proto.getId(), proto.getCreated(), TaskStatus.of(proto.getStatus()));
  }
}
