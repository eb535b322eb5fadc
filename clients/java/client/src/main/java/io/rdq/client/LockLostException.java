package io.rdq.client;

/**
 * A lock is not held any more: what it guards must stop. Its cause is the error of the last
 * renewal, if that failed.
 */
public final class LockLostException extends RuntimeException {
  LockLostException(String name, long generation, RdqException lastRenewal) {
    super("the lock %s, generation %d, is lost".formatted(name, generation), lastRenewal);
  }
}
