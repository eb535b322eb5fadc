package io.rdq.client;

import java.util.Collections;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A list on the server, read a page at a time while it is walked. Each walk begins with the first
 * page; what comes and goes meanwhile makes it show nothing twice.
 */
public final class Pages<T> implements Iterable<T> {
  private final Function<String, Page<T>> read;

  Pages(Function<String, Page<T>> read) {
    this.read = read;
  }

  /** Reads one page: the first if the token is empty, else the one that the token names. */
  public Page<T> page(String pageToken) {
    return read.apply(pageToken);
  }

  /** Walks all items. Its methods throw an {@link RdqException} where a page cannot be read. */
  @Override
  public Iterator<T> iterator() {
    return new Iterator<>() {
      private Iterator<T> items = Collections.emptyIterator();
      private String next = "";

      @Override
      public boolean hasNext() {
        while (!items.hasNext() && next != null) {
          Page<T> page = page(next);
          items = page.items().iterator();
          next = page.isLast() ? null : page.nextPageToken();
        }
        return items.hasNext();
      }

      @Override
      public T next() {
        if (!hasNext()) {
          throw new NoSuchElementException();
        }
        return items.next();
      }
    };
  }

  /** All items, read as they are asked for. */
  public Stream<T> stream() {
    return StreamSupport.stream(spliterator(), false);
  }
}
