package io.rdq.client;

import io.grpc.Status;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** What is known of an error, before it has a type. */
record Refusal(
    Status.Code code,
    String reason,
    String message,
    Map<String, String> metadata,
    Optional<Duration> retryAfter) {}
