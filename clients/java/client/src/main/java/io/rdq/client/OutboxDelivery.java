package io.rdq.client;

import io.rdq.v1.OutboxMessage;

/** Carries the messages of an outbox elsewhere. */
@FunctionalInterface
public interface OutboxDelivery {
  /**
   * Delivers one message. It may have been delivered before.
   *
   * @throws InterruptedException if the delivery was broken off: the message is due again at once
   * @throws Exception if it failed: the message comes again after a while, or is a dead letter
   */
  void deliver(OutboxMessage message) throws Exception;
}
