package io.rdq.client;

/** Which dead letters of a queue to list. Immutable; each setter gives a new one. */
public final class DlqQuery {
  private final io.rdq.v1.DlqListRequest proto;

  private DlqQuery(io.rdq.v1.DlqListRequest.Builder proto) {
    this.proto = proto.build();
  }

  /** All dead letters of a queue, newest first. */
  public static DlqQuery of(String queue) {
    return new DlqQuery(io.rdq.v1.DlqListRequest.newBuilder().setQueue(queue));
  }

  /** Only those that match. */
  public DlqQuery filter(DlqFilter filter) {
    return new DlqQuery(proto.toBuilder().setFilter(filter.toProto()));
  }

  /** How many are on one page, up to 1,000; 50 if unset. */
  public DlqQuery pageSize(int tasks) {
    return new DlqQuery(proto.toBuilder().setPageSize(tasks));
  }

  /** With their history, stacks and details included. */
  public DlqQuery withAttempts() {
    return new DlqQuery(proto.toBuilder().setIncludeAttempts(true));
  }

  io.rdq.v1.DlqListRequest page(String pageToken) {
    return proto.toBuilder().setPageToken(pageToken).build();
  }
}
