package io.rdq.client;

/** Another holds the lock, and did so for as long as there was time to wait. */
public final class LockHeldException extends RuntimeException {
  LockHeldException(String name) {
    super("another holds the lock " + name);
  }
}
