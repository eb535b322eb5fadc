package io.rdq.client;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Executor;

/** What a worker was set up with. */
record WorkerSettings(
    List<String> queues,
    String workerId,
    int concurrency,
    Optional<Duration> lease,
    Duration grace,
    Worker.Receiving receiving,
    OutcomeMapper mapper,
    Executor executor) {}
