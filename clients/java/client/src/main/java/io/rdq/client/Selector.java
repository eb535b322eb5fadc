package io.rdq.client;

import java.util.Arrays;

/** Which dead letters a redrive or a purge acts on. */
public final class Selector {
  private final io.rdq.v1.Selector proto;

  private Selector(io.rdq.v1.Selector.Builder proto) {
    this.proto = proto.build();
  }

  /** These tasks, 1 to 1,000; those that are not dead letters of the queue are passed over. */
  public static Selector ids(Iterable<String> ids) {
    return new Selector(
        io.rdq.v1.Selector.newBuilder().setIds(io.rdq.v1.TaskIds.newBuilder().addAllIds(ids)));
  }

  /** These tasks, as above. */
  public static Selector ids(String... ids) {
    return ids(Arrays.asList(ids));
  }

  /** Those that match. A filter in which nothing is set is refused. */
  public static Selector filter(DlqFilter filter) {
    return new Selector(io.rdq.v1.Selector.newBuilder().setFilter(filter.toProto()));
  }

  /** Every dead letter of the queue. */
  public static Selector all() {
    return new Selector(io.rdq.v1.Selector.newBuilder().setAll(true));
  }

  io.rdq.v1.Selector toProto() {
    return proto;
  }
}
