package io.rdq.client;

/**
 * The storage cannot be reached. Repeat with backoff; {@link #outcomeUnknown} says whether the
 * change may have happened. Reason {@code STORAGE_UNAVAILABLE}.
 */
public final class StorageUnavailableException extends RdqException {
  StorageUnavailableException(Refusal refusal, Throwable cause) {
    super(refusal, cause);
  }
}
