package io.rdq.client;

/** Implemented by an exception whose failures go by another name than that of its class. */
public interface HasErrorType {
  /** A stable name, such as {@code http.503}, for the queue's classification and for filters. */
  String errorType();
}
