package io.rdq.client;

/** Which tasks of a queue to list. Immutable; each setter gives a new one. */
public final class TaskQuery {
  private final io.rdq.v1.ListRequest proto;

  private TaskQuery(io.rdq.v1.ListRequest.Builder proto) {
    this.proto = proto.build();
  }

  /** All tasks of a queue, newest first. */
  public static TaskQuery of(String queue) {
    return new TaskQuery(io.rdq.v1.ListRequest.newBuilder().setQueue(queue));
  }

  /** Only those in this status. */
  public TaskQuery status(TaskStatus status) {
    return new TaskQuery(proto.toBuilder().setStatus(status.toProto()));
  }

  /** How many are on one page, up to 1,000; 50 if unset. */
  public TaskQuery pageSize(int tasks) {
    return new TaskQuery(proto.toBuilder().setPageSize(tasks));
  }

  /** With their history, stacks and details included. */
  public TaskQuery withAttempts() {
    return new TaskQuery(proto.toBuilder().setIncludeAttempts(true));
  }

  io.rdq.v1.ListRequest page(String pageToken) {
    return proto.toBuilder().setPageToken(pageToken).build();
  }
}
