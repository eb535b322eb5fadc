package io.rdq.client;

import java.util.HashMap;
import java.util.Map;

/** Which handler runs a task. */
final class Router {
  /** The handlers of one name. */
  private static final class Versions {
    final Map<String, Handler> byVersion = new HashMap<>();
    Handler unversioned;
    Handler last;
  }

  /**
   * Where a task goes.
   *
   * @param handler what runs it; null if nothing does
   * @param refusal how it ends then; null if there is a handler
   */
  record Route(Handler handler, Outcome refusal) {}

  private final Map<String, Versions> byRef = new HashMap<>();

  /** Registers a handler, for a version if that is not null. */
  void add(String handlerRef, String version, Handler handler) {
    Versions versions = byRef.computeIfAbsent(handlerRef, ref -> new Versions());
    Handler before;
    if (version == null) {
      before = versions.unversioned;
      versions.unversioned = handler;
    } else {
      before = versions.byVersion.put(version, handler);
      versions.last = handler;
    }
    if (before != null) {
      throw new IllegalArgumentException("there is a handler already for " + handlerRef);
    }
  }

  boolean isEmpty() {
    return byRef.isEmpty();
  }

  /**
   * The handler of a task.
   *
   * @param version the version that the producer meant; null if none
   * @param mustMatch whether another version is not to run it
   */
  Route route(String handlerRef, String version, boolean mustMatch) {
    Versions versions = byRef.get(handlerRef);
    if (versions == null) {
      String message = "this worker has no handler " + handlerRef;
      return new Route(null, Outcome.permanent(Failure.UNROUTABLE, message));
    }
    if (version != null) {
      Handler exact = versions.byVersion.get(version);
      if (exact != null) {
        return new Route(exact, null);
      }
      if (mustMatch) {
        String message = "this worker has no version " + version + " of handler " + handlerRef;
        return new Route(null, Outcome.permanent(Failure.VERSION_MISMATCH, message));
      }
    }
    return new Route(versions.unversioned != null ? versions.unversioned : versions.last, null);
  }
}
