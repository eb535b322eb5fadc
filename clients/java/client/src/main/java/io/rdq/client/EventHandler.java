package io.rdq.client;

import io.rdq.v1.StreamEvent;

/** Handles the events of a stream, one at a time and in order. */
@FunctionalInterface
public interface EventHandler {
  /**
   * Handles one event. It may come again after a crash.
   *
   * @throws Exception ends the subscription, with nothing saved beyond the events before this one
   */
  void handle(StreamEvent event) throws Exception;
}
