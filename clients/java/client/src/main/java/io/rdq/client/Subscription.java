package io.rdq.client;

import static java.lang.System.Logger.Level.WARNING;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.rdq.v1.SaveOffsetRequest;
import io.rdq.v1.StreamEvent;
import io.rdq.v1.StreamServiceGrpc;
import io.rdq.v1.SubscribeRequest;
import io.rdq.v1.SubscribeResponse;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * A consumer that reads a stream of events, until it is stopped.
 *
 * <p>It calls the handler for one event after the other, in order, on a thread of its own, and
 * saves the offset after those that succeeded: at the end of each message of the server, and each
 * second within one. So every event is handled at least once; after a crash, those since the last
 * save come again. It connects again after every end of its stream.
 *
 * <p>An exception of the handler ends it: what succeeded before is saved, the failed event is not.
 * It is not retried here, since the order forbids going on without that event, and only the
 * application knows whether trying again helps: a new subscription begins with it.
 *
 * <p>Safe for many threads.
 */
public final class Subscription implements AutoCloseable {
  private static final System.Logger LOG = System.getLogger("io.rdq.client.Subscription");
  private static final Duration RECONNECT_MAX = Duration.ofSeconds(10);
  private static final Duration SAVE_MAX = Duration.ofSeconds(5);
  private static final long SAVE_EVERY = Duration.ofSeconds(1).toNanos();
  private static final int SILENCE_MAX_SECONDS = 40;

  private final Calls calls;
  private final ManagedChannel ownChannel;
  private final Channel channel;
  private final SubscribeRequest request;
  private final EventHandler handler;
  private final Thread thread;
  private final CountDownLatch stopping = new CountDownLatch(1);

  /** What a stop has to end, if there is a stream; under the lock. */
  private Reading reading;

  private volatile Exception failure;
  private volatile boolean isHandlersFailure;

  private volatile long stopNanos;
  private long handled;
  private long saved;
  private long lastSaveNanos;

  private Subscription(Builder builder) {
    calls = builder.calls;
    ownChannel = builder.ownChannel == null ? null : builder.ownChannel.get();
    channel = ownChannel == null ? calls.channel() : ownChannel;
    request = builder.request.build();
    handler = builder.handler;
    thread = new Thread(this::run, "rdq-subscription-" + request.getStream());
  }

  /**
   * Ends it once the handler of the current event has, saves, within 5 seconds, and waits for that.
   * Events that came and were not begun are left. An interrupt of the caller ends the waiting only.
   */
  public void stop() {
    stopAsync();
    if (Thread.currentThread() != thread) {
      awaitEnd();
    }
  }

  /** As {@link #stop}, but returns at once; for handlers, too. */
  public void stopAsync() {
    synchronized (this) {
      if (!isStopping()) {
        stopNanos = System.nanoTime();
        stopping.countDown();
      }
      if (reading != null) {
        reading.cancel();
      }
    }
  }

  /**
   * Waits until it ended.
   *
   * @throws ExecutionException with what the handler threw, if that ended it
   * @throws RdqException if the service refused, or the last save failed
   */
  public void awaitStopped() throws ExecutionException {
    awaitEnd();
    Exception ended = failure;
    if (thread.isAlive() || ended == null) {
      return;
    }
    if (isHandlersFailure) {
      throw new ExecutionException("the handler of " + request.getStream() + " failed", ended);
    }
    throw ended instanceof RdqException refused ? refused : new IllegalStateException(ended);
  }

  private void awaitEnd() {
    try {
      thread.join();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** As {@link #stop}. */
  @Override
  public void close() {
    stop();
  }

  private boolean isStopping() {
    return stopping.getCount() == 0;
  }

  private void run() {
    Backoff reconnect = new Backoff(RECONNECT_MAX);
    lastSaveNanos = System.nanoTime();
    try {
      while (!isStopping()) {
        RdqException error = read(reconnect);
        if (failure != null || isStopping()) {
          break;
        }
        if (error != null && !error.isRetryable()) {
          failure = error;
          break;
        }
        String why = error == null ? "the server ended the stream" : error.getMessage();
        LOG.log(WARNING, "no stream of {0}, subscribing again: {1}", request.getStream(), why);
        stopping.await(
            error == null ? reconnect.nextNanos() : Calls.waitNanos(reconnect, error.retryAfter()),
            TimeUnit.NANOSECONDS);
        Calls.wakeUp(channel);
      }
      save();
    } catch (RdqException | InterruptedException error) {
      if (failure == null) {
        failure = error;
      } else {
        failure.addSuppressed(error);
      }
    } finally {
      if (ownChannel != null) {
        ownChannel.shutdownNow();
      }
    }
  }

  /** Reads a stream to its end; the error by which it ended, or null. */
  private RdqException read(Backoff reconnect) throws InterruptedException {
    Reading stream = new Reading();
    try {
      // What an earlier save failed to say: the server goes on from what is saved.
      save();
      synchronized (this) {
        reading = stream;
      }
      stream.start();
      while (!isStopping()) {
        SubscribeResponse message = stream.next();
        if (message == null) {
          return stream.error;
        }
        reconnect.reset();
        for (StreamEvent event : message.getEventsList()) {
          if (isStopping() || !handle(event)) {
            return null;
          }
        }
        save();
      }
      return null;
    } catch (RdqException error) {
      return error;
    } finally {
      stream.cancel();
      synchronized (this) {
        reading = null;
      }
    }
  }

  /** False if the handler failed. */
  private boolean handle(StreamEvent event) {
    if (event.getOffset() <= handled) {
      return true;
    }
    try {
      handler.handle(event);
    } catch (Exception error) {
      isHandlersFailure = true;
      failure = error;
      return false;
    } catch (Error error) {
      isHandlersFailure = true;
      failure = new ExecutionException(error);
      return false;
    } finally {
      Thread.interrupted(); // the handler's, not for what follows
    }
    handled = event.getOffset();
    if (System.nanoTime() - lastSaveNanos >= SAVE_EVERY) {
      save();
    }
    return true;
  }

  /** Saves what is handled, if it is not saved. */
  private void save() {
    if (handled <= saved) {
      return;
    }
    SaveOffsetRequest save =
        SaveOffsetRequest.newBuilder()
            .setStream(request.getStream())
            .setConsumer(request.getConsumer())
            .setOffset(handled)
            .build();
    calls.within(saveMax()).unary(StreamServiceGrpc.getSaveOffsetMethod(), save);
    saved = handled;
    lastSaveNanos = System.nanoTime();
  }

  /** One that fails is made up for before the next stream, or the end. */
  private Duration saveMax() {
    if (!isStopping()) {
      return SAVE_MAX;
    }
    long left = stopNanos + SAVE_MAX.toNanos() - System.nanoTime();
    return Duration.ofNanos(Math.max(1_000_000, left));
  }

  /** One stream, read message by message: none is asked for before the last one is handled. */
  private final class Reading extends ClientCall.Listener<SubscribeResponse> {
    private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
    private final ClientCall<SubscribeRequest, SubscribeResponse> call =
        channel.newCall(
            StreamServiceGrpc.getSubscribeMethod(),
            CallOptions.DEFAULT.withExecutor(Runnable::run));

    /** By which it ended; null if it did so in order. */
    RdqException error;

    void start() {
      call.start(this, new Metadata());
      call.sendMessage(request);
      call.halfClose();
      if (isStopping()) {
        cancel();
      }
    }

    /** The next message; null if there is none. */
    SubscribeResponse next() throws InterruptedException {
      call.request(1);
      Object next = arrived.poll(SILENCE_MAX_SECONDS, TimeUnit.SECONDS);
      if (next instanceof SubscribeResponse message) {
        return message;
      }
      if (next == null) {
        LOG.log(WARNING, "nothing came for 40 s");
      } else {
        error = ((Ended) next).error;
      }
      return null;
    }

    void cancel() {
      call.cancel("dropped by the subscription", null);
    }

    @Override
    public void onMessage(SubscribeResponse message) {
      arrived.add(message);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      boolean inOrder = status.isOk();
      arrived.add(new Ended(inOrder ? null : Errors.of(status.asRuntimeException(trailers))));
    }
  }

  private record Ended(RdqException error) {}

  /** Settings of a subscription. */
  public static final class Builder {
    private final Calls calls;
    private final Supplier<ManagedChannel> ownChannel;
    private final SubscribeRequest.Builder request;
    private EventHandler handler;

    Builder(Calls calls, Supplier<ManagedChannel> ownChannel, String stream, String consumer) {
      this.calls = calls;
      this.ownChannel = ownChannel;
      request = SubscribeRequest.newBuilder().setStream(stream).setConsumer(consumer);
    }

    /** How many events come in one message at most, 1 to 1,000; the server's default if unset. */
    public Builder eventsPerMessage(int events) {
      request.setLimit(events);
      return this;
    }

    /** What handles the events; required. */
    public Builder handler(EventHandler handles) {
      handler = Objects.requireNonNull(handles, "handles");
      return this;
    }

    /** Starts it. */
    public Subscription start() {
      if (handler == null) {
        throw new IllegalStateException("a subscription needs a handler");
      }
      Subscription subscription = new Subscription(this);
      subscription.thread.start();
      return subscription;
    }
  }
}
