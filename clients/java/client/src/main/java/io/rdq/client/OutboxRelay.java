package io.rdq.client;

import static java.lang.System.Logger.Level.WARNING;

import io.rdq.v1.ClaimBatchRequest;
import io.rdq.v1.ClaimBatchResponse;
import io.rdq.v1.MarkProjectedRequest;
import io.rdq.v1.OutboxMessage;
import io.rdq.v1.OutboxServiceFailRequest;
import io.rdq.v1.OutboxServiceGrpc;
import io.rdq.v1.ReleaseWithErrorRequest;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Carries the messages of an outbox elsewhere, oldest first, each at least once.
 *
 * <p>No claim is extended: a delivery has to take less than the lease. Safe for many threads.
 */
public final class OutboxRelay {
  private static final System.Logger LOG = System.getLogger("io.rdq.client.OutboxRelay");
  private static final Duration IDLE_MAX = Duration.ofSeconds(2);
  private static final Duration RECONNECT_MAX = Duration.ofSeconds(10);
  private static final Duration GIVE_BACK_MAX = Duration.ofSeconds(1);
  private static final int ERROR_BYTES_MAX = 4 << 10;

  private final Calls calls;
  private final ClaimBatchRequest claim;
  private final CountDownLatch stopped = new CountDownLatch(1);

  private OutboxRelay(Builder builder) {
    calls = builder.calls;
    claim = builder.claim.build();
  }

  /**
   * Claims a message, delivers it and marks it as projected; false if there is none.
   *
   * <p>If the delivery fails, the message comes again after a while or is a dead letter, by the
   * outboxes' policy, with the error; nothing is thrown for that. Nor is it if the claim ended
   * meanwhile: the message is another's then.
   *
   * @throws InterruptedException if the delivery was broken off, by an interrupt; the message was
   *     given back, due at once
   * @throws RdqException if the service could not be reached, or refused
   */
  public boolean runOnce(String workerId, OutboxDelivery delivery) throws InterruptedException {
    return deliver(
        calls.unary(
            OutboxServiceGrpc.getClaimBatchMethod(),
            claim.toBuilder().setWorkerId(workerId).build()),
        delivery);
  }

  /**
   * Delivers message after message until {@link #stop}. While there is none it asks again with
   * backoff, up to 2 seconds; after an error that a repetition helps, as a worker connects again.
   *
   * @throws InterruptedException if the thread was interrupted
   * @throws RdqException if the service refused
   */
  public void run(String workerId, OutboxDelivery delivery) throws InterruptedException {
    Backoff idle = new Backoff(IDLE_MAX);
    Backoff reconnect = new Backoff(RECONNECT_MAX);
    ClaimBatchRequest request = claim.toBuilder().setWorkerId(workerId).build();
    long wait = 0;
    while (!stopped.await(wait, TimeUnit.NANOSECONDS)) {
      try {
        // One try: the loop itself is what repeats it, and can be stopped.
        ClaimBatchResponse claimed =
            calls.once(OutboxServiceGrpc.getClaimBatchMethod(), request, calls.tries());
        boolean found = deliver(claimed, delivery);
        reconnect.reset();
        if (found) {
          idle.reset();
        }
        wait = found ? 0 : idle.nextNanos();
      } catch (RdqException error) {
        if (Thread.interrupted()) {
          throw new InterruptedException("interrupted while claiming a message");
        }
        if (!error.isRetryable()) {
          throw error;
        }
        wait = Calls.waitNanos(reconnect, error.retryAfter());
        LOG.log(WARNING, "the outbox is out of reach: {0}", error.getMessage());
        Calls.wakeUp(calls.channel());
      }
    }
  }

  /**
   * Ends every {@link #run}, for good: deliveries under way go on to their end and are answered,
   * and nothing more is claimed. Returns at once.
   */
  public void stop() {
    stopped.countDown();
  }

  private boolean deliver(ClaimBatchResponse claimed, OutboxDelivery delivery)
      throws InterruptedException {
    if (claimed.getMessagesCount() == 0) {
      return false;
    }
    OutboxMessage message = claimed.getMessages(0);
    try {
      delivery.deliver(message);
    } catch (InterruptedException interrupted) {
      giveBack(message);
      throw interrupted;
    } catch (Throwable thrown) {
      if (Thread.interrupted()) {
        giveBack(message);
        InterruptedException interrupted = new InterruptedException("the delivery was broken off");
        interrupted.initCause(thrown);
        throw interrupted;
      }
      fail(message, thrown);
      return true;
    }
    MarkProjectedRequest request =
        MarkProjectedRequest.newBuilder()
            .setId(message.getId())
            .setWorkerId(message.getWorkerId())
            .setGeneration(message.getGeneration())
            .build();
    unlessEnded(
        message, () -> calls.uninterrupted(OutboxServiceGrpc.getMarkProjectedMethod(), request));
    return true;
  }

  private void fail(OutboxMessage message, Throwable thrown) {
    Failure failure = Failure.of(thrown);
    OutboxServiceFailRequest request =
        OutboxServiceFailRequest.newBuilder()
            .setId(message.getId())
            .setWorkerId(message.getWorkerId())
            .setGeneration(message.getGeneration())
            .setError(cut(failure.type() + ": " + failure.message()))
            .build();
    unlessEnded(message, () -> calls.uninterrupted(OutboxServiceGrpc.getFailMethod(), request));
  }

  /** In as many bytes of UTF-8 as an outbox keeps, between characters. */
  private static String cut(String text) {
    String cut = Failure.cut(text, ERROR_BYTES_MAX);
    while (cut.getBytes(StandardCharsets.UTF_8).length > ERROR_BYTES_MAX) {
      cut = Failure.cut(cut, cut.length() - 1);
    }
    return cut;
  }

  private void giveBack(OutboxMessage message) {
    calls.tell(
        OutboxServiceGrpc.getReleaseWithErrorMethod(),
        ReleaseWithErrorRequest.newBuilder()
            .setId(message.getId())
            .setWorkerId(message.getWorkerId())
            .setGeneration(message.getGeneration())
            .setError("the delivery was broken off")
            .build(),
        GIVE_BACK_MAX,
        error ->
            LOG.log(WARNING, "{0} was not given back: {1}", message.getId(), error.getMessage()));
  }

  private static void unlessEnded(OutboxMessage message, Runnable tells) {
    try {
      tells.run();
    } catch (OutboxClaimMismatchException | OutboxMissingException ended) {
      LOG.log(WARNING, "the claim of {0} ended before its delivery", message.getId());
    }
  }

  /** Settings of a relay. */
  public static final class Builder {
    private final Calls calls;
    private final ClaimBatchRequest.Builder claim = ClaimBatchRequest.newBuilder().setLimit(1);

    Builder(Calls calls) {
      this.calls = calls;
    }

    /** The outbox whose messages are carried; any if unset. */
    public Builder outbox(String name) {
      claim.setOutbox(name);
      return this;
    }

    /** How long a message is claimed; 60 seconds if unset. */
    public Builder lease(Duration duration) {
      claim.setLease(Times.proto(Objects.requireNonNull(duration, "duration")));
      return this;
    }

    /** The relay. */
    public OutboxRelay build() {
      return new OutboxRelay(this);
    }
  }
}
