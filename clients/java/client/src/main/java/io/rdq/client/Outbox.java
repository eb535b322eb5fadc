package io.rdq.client;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The outcomes that are not answered: those to be sent, and those that were. */
final class Outbox {
  /** What one message carries at most. */
  static final int ITEMS_MAX = 1_000;

  static final long BYTES_MAX = 3 << 20;

  private final Set<Delivery> toSend = new LinkedHashSet<>();
  private final Set<Delivery> sent = new HashSet<>();

  /** To be sent, at once or when its time has come. */
  void add(Delivery delivery) {
    sent.remove(delivery);
    toSend.add(delivery);
  }

  /** What one message carries, of what may be sent now; from here on it waits for its answer. */
  List<Delivery> take(long nowNanos) {
    List<Delivery> taken = new ArrayList<>();
    long bytes = 0;
    Iterator<Delivery> all = toSend.iterator();
    while (all.hasNext() && taken.size() < ITEMS_MAX) {
      Delivery delivery = all.next();
      if (delivery.notBeforeNanos > nowNanos || delivery.goesAlone && !taken.isEmpty()) {
        continue;
      }
      bytes += sizeOf(delivery);
      if (bytes > BYTES_MAX && !taken.isEmpty()) {
        break;
      }
      taken.add(delivery);
      all.remove();
      if (delivery.goesAlone) {
        break;
      }
    }
    sent.addAll(taken);
    return taken;
  }

  /** Has its answer. */
  void answered(Delivery delivery) {
    sent.remove(delivery);
    toSend.remove(delivery);
  }

  /** Takes back what is not sent. */
  void remove(Delivery delivery) {
    toSend.remove(delivery);
  }

  /** Whether it was sent and waits for its answer. */
  boolean isSent(Delivery delivery) {
    return sent.contains(delivery);
  }

  boolean isEmpty() {
    return toSend.isEmpty() && sent.isEmpty();
  }

  int size() {
    return toSend.size() + sent.size();
  }

  /** When the next one may be sent, of those that could not be yet at a certain time. */
  long nextNanos(long sinceNanos) {
    long next = Long.MAX_VALUE;
    for (Delivery delivery : toSend) {
      if (delivery.notBeforeNanos > sinceNanos) {
        next = Math.min(next, delivery.notBeforeNanos);
      }
    }
    return next;
  }

  static long sizeOf(Delivery delivery) {
    return delivery.resolution.getSerializedSize();
  }
}
