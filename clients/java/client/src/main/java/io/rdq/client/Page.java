package io.rdq.client;

import java.util.List;

/**
 * One page of a list.
 *
 * @param items what is on it; may be fewer than asked for, even none
 * @param nextPageToken names the next page; empty on the last
 */
public record Page<T>(List<T> items, String nextPageToken) {
  /** Whether no page comes after it. */
  public boolean isLast() {
    return nextPageToken.isEmpty();
  }
}
