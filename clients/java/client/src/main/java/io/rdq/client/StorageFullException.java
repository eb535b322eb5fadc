package io.rdq.client;

/** The storage has no space left; nothing changed. Reason {@code STORAGE_FULL}. */
public final class StorageFullException extends RdqException {
  StorageFullException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
