package io.rdq.client;

import com.google.protobuf.MessageLite;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.Iterator;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;

/** Unary calls, repeated while that helps and the total deadline lasts. */
final class Calls {
  private static final Duration TRY_MAX = Duration.ofSeconds(10);
  static final Duration BACKOFF_MAX = Duration.ofSeconds(5);

  private final Channel channel;
  private final Duration deadline;

  Calls(Channel channel, Duration deadline) {
    this.channel = channel;
    this.deadline = deadline;
  }

  Channel channel() {
    return channel;
  }

  /** The same calls within another time. */
  Calls within(Duration time) {
    return new Calls(channel, time);
  }

  /** Calls, and repeats it while that helps. */
  <Q extends MessageLite, R> R unary(MethodDescriptor<Q, R> method, Q request) {
    Tries tries = tries();
    while (true) {
      try {
        return once(method, request, tries);
      } catch (RdqException error) {
        tries.next(error);
      }
    }
  }

  /**
   * As {@link #unary}, also on a thread that is interrupted, which it is again afterwards: for what
   * has to be told in any case.
   */
  <Q extends MessageLite, R> R uninterrupted(MethodDescriptor<Q, R> method, Q request) {
    boolean wasInterrupted = Thread.interrupted();
    try {
      return unary(method, request);
    } finally {
      if (wasInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Calls once, awaits no answer, and only says if it was a refusal. */
  <Q, R> void tell(
      MethodDescriptor<Q, R> method, Q request, Duration within, Consumer<RdqException> refused) {
    CallOptions options =
        CallOptions.DEFAULT
            .withDeadlineAfter(Times.nanos(within), TimeUnit.NANOSECONDS)
            .withExecutor(Runnable::run);
    ClientCalls.asyncUnaryCall(
        channel.newCall(method, options),
        request,
        new StreamObserver<R>() {
          @Override
          public void onNext(R answer) {}

          @Override
          public void onError(Throwable thrown) {
            refused.accept(Errors.of(thrown));
          }

          @Override
          public void onCompleted() {}
        });
  }

  /** One try of a call. */
  <Q, R> R once(MethodDescriptor<Q, R> method, Q request, Tries tries) {
    try {
      CallOptions options =
          CallOptions.DEFAULT.withDeadlineAfter(tries.tryNanos(), TimeUnit.NANOSECONDS);
      return ClientCalls.blockingUnaryCall(channel, method, options, request);
    } catch (RuntimeException thrown) {
      throw Errors.of(thrown);
    }
  }

  /**
   * Calls what answers with a stream that shows progress: limited in time and repeated as any other
   * call until its first message, and neither after that. What it throws after messages came is
   * passed on as it is.
   */
  <Q, R> void progress(MethodDescriptor<Q, R> method, Q request, Consumer<R> onMessage) {
    Tries tries = tries();
    while (true) {
      boolean began = false;
      ClientCall<Q, R> call = channel.newCall(method, CallOptions.DEFAULT);
      FirstMessage first = new FirstMessage(call, tries.tryNanos());
      try {
        Iterator<R> answers = ClientCalls.blockingServerStreamingCall(call, request);
        while (answers.hasNext()) {
          R answer = answers.next();
          if (!began) {
            began = first.came();
            if (!began) {
              throw FirstMessage.isMissing(null);
            }
          }
          onMessage.accept(answer);
        }
        return;
      } catch (io.grpc.StatusRuntimeException thrown) {
        if (began) {
          throw Errors.of(thrown);
        }
        boolean isLate = !first.came();
        tries.next(Errors.of(isLate ? FirstMessage.isMissing(thrown) : thrown));
      } catch (IllegalStateException thrown) {
        // As gRPC says it where the call was cancelled before it was sent.
        if (first.came()) {
          throw thrown;
        }
        tries.next(Errors.of(FirstMessage.isMissing(thrown)));
      } finally {
        first.came(); // or nobody waits for it any more
      }
    }
  }

  /** Cancels a call whose first message does not come in time. */
  private static final class FirstMessage {
    private final AtomicBoolean isSettled = new AtomicBoolean();
    private final CompletableFuture<Void> timer;
    private boolean came;

    FirstMessage(ClientCall<?, ?> call, long nanos) {
      Executor later = CompletableFuture.delayedExecutor(nanos, TimeUnit.NANOSECONDS);
      timer =
          CompletableFuture.runAsync(
              () -> {
                if (isSettled.compareAndSet(false, true)) {
                  call.cancel("no message in time", null);
                }
              },
              later);
    }

    /** It came, or will not be waited for; false if the call was cancelled before. */
    boolean came() {
      if (isSettled.compareAndSet(false, true)) {
        came = true;
        timer.cancel(false);
      }
      return came;
    }

    static RuntimeException isMissing(Throwable cause) {
      return Status.DEADLINE_EXCEEDED
          .withDescription("no message came in time")
          .withCause(cause)
          .asRuntimeException();
    }
  }

  /** The tries of one call, which begins now. */
  Tries tries() {
    return new Tries(deadline);
  }

  /** Tells the channel that its next call should not wait for its own, longer backoff. */
  static void wakeUp(Channel channel) {
    if (channel instanceof ManagedChannel managed) {
      managed.resetConnectBackoff();
    }
  }

  /** How long one call goes on, and how it waits between its tries. */
  final class Tries {
    private final Backoff backoff = new Backoff(BACKOFF_MAX);
    private final long endNanos;
    private boolean outcomeUnknown;

    private Tries(Duration total) {
      endNanos = System.nanoTime() + Times.nanos(total);
    }

    /** How long the next try may take. */
    long tryNanos() {
      return Math.max(1, Math.min(TRY_MAX.toNanos(), endNanos - System.nanoTime()));
    }

    /** Waits before the next try, or throws the error if there is none. */
    void next(RdqException error) {
      if (!error.isRetryable()) {
        throw error;
      }
      outcomeUnknown |= error.outcomeUnknown();
      long wait = waitNanos(backoff, error.retryAfter());
      if (wait >= endNanos - System.nanoTime()) {
        throw outcomeUnknown ? error.withOutcomeUnknown() : error;
      }
      try {
        TimeUnit.NANOSECONDS.sleep(wait);
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        RdqException stopped =
            Errors.of(
                Status.CANCELLED
                    .withDescription("interrupted while waiting to retry: " + error.getMessage())
                    .withCause(error)
                    .asRuntimeException());
        throw outcomeUnknown ? stopped.withOutcomeUnknown() : stopped;
      }
      wakeUp(channel);
    }
  }

  /** The wait that backoff gives, but not before the server wants to be asked again. */
  static long waitNanos(Backoff backoff, Optional<Duration> retryAfter) {
    return retryAfter.map(Times::nanos).orElse(0L) + backoff.nextNanos();
  }
}
