package io.rdq.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ClientResponseObserver;
import io.rdq.v1.ClaimDueRequest;
import io.rdq.v1.ClaimDueResponse;
import io.rdq.v1.ClaimedTask;
import io.rdq.v1.TaskServiceGrpc;
import io.rdq.v1.WorkHeartbeat;
import io.rdq.v1.WorkOutcome;
import io.rdq.v1.WorkRequest;
import io.rdq.v1.WorkResponse;
import io.rdq.v1.WorkStart;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A stream by which claims arrive. Its methods and fields belong to the loop's thread; what it
 * hears goes to a listener, on threads of gRPC.
 */
abstract sealed class Link permits Link.Work, Link.Follow {
  /** Hears what arrives. */
  interface Listener {
    /** A message came: claims, and what else the server says. */
    void received(Link link, List<ClaimedTask> tasks, WorkResponse message);

    /** More can be sent than a moment ago. */
    void ready(Link link);

    /** The stream ended; {@code error} is null if it did so in order. */
    void ended(Link link, Throwable error);
  }

  /** Whether a message came. */
  boolean isOpen;

  /** When the last message came, or the stream was opened. */
  long heardNanos;

  /** Ends it at once. */
  abstract void cancel();

  /** Takes no more claims. */
  abstract void stopClaiming();

  /** Whether outcomes and heartbeats can be sent by it now. */
  abstract boolean canSend();

  /** {@code Work}: claims come down, outcomes and heartbeats go up. */
  static final class Work extends Link {
    /** Outcomes that are not answered. */
    private final Map<Long, Delivery> outcomes = new HashMap<>();

    /** Heartbeats that are not answered. */
    private final Map<Long, Heartbeat> heartbeats = new HashMap<>();

    private ClientCallStreamObserver<WorkRequest> requests;
    private boolean isClosed;
    private long seq;

    /** Credits that were granted and brought no task yet. */
    int credits;

    /** Opens the stream. */
    Work(Channel channel, WorkStart start, int credits, Listener listener) {
      this.credits = credits;
      ClientCall<WorkRequest, WorkResponse> call =
          channel.newCall(TaskServiceGrpc.getWorkMethod(), onGrpcThread());
      ClientCalls.asyncBidiStreamingCall(
          call,
          new ClientResponseObserver<WorkRequest, WorkResponse>() {
            @Override
            public void beforeStart(ClientCallStreamObserver<WorkRequest> stream) {
              requests = stream;
              stream.setOnReadyHandler(() -> listener.ready(Work.this));
            }

            @Override
            public void onNext(WorkResponse message) {
              listener.received(Work.this, message.getTasksList(), message);
            }

            @Override
            public void onError(Throwable thrown) {
              listener.ended(Work.this, thrown);
            }

            @Override
            public void onCompleted() {
              listener.ended(Work.this, null);
            }
          });
      WorkRequest.Builder first = WorkRequest.newBuilder().setStart(start);
      if (credits > 0) {
        first.setCredits(credits);
      }
      requests.onNext(first.build());
    }

    @Override
    boolean canSend() {
      return isOpen && !isClosed && requests.isReady();
    }

    /** Sends one message. */
    void send(List<Delivery> deliveries, List<Heartbeat> beats, int newCredits) {
      WorkRequest.Builder message = WorkRequest.newBuilder();
      for (Delivery delivery : deliveries) {
        outcomes.put(++seq, delivery);
        message.addOutcomes(
            WorkOutcome.newBuilder().setSeq(seq).setResolution(delivery.resolution));
      }
      for (Heartbeat beat : beats) {
        heartbeats.put(++seq, beat);
        message.addHeartbeats(WorkHeartbeat.newBuilder().setSeq(seq).setExtend(beat.request()));
      }
      if (newCredits > 0) {
        credits += newCredits;
        message.setCredits(newCredits);
      }
      requests.onNext(message.build());
    }

    /** The outcome that an answer is for; null if it had its answer. */
    Delivery outcome(long number) {
      return outcomes.remove(number);
    }

    /** The heartbeat that an answer is for; null if it had its answer. */
    Heartbeat heartbeat(long number) {
      return heartbeats.remove(number);
    }

    /** The outcomes that have no answer. */
    Collection<Delivery> unanswered() {
      return outcomes.values();
    }

    /** The heartbeats that have no answer. */
    Collection<Heartbeat> unansweredHeartbeats() {
      return heartbeats.values();
    }

    @Override
    void stopClaiming() {
      if (!isClosed) {
        isClosed = true;
        requests.onCompleted();
      }
    }

    @Override
    void cancel() {
      isClosed = true;
      requests.cancel("dropped by the worker", null);
    }
  }

  /** {@code ClaimDue} with {@code follow}: claims come down, and nothing goes up. */
  static final class Follow extends Link {
    private ClientCallStreamObserver<ClaimDueRequest> call;

    /** Opens the stream. */
    Follow(Channel channel, ClaimDueRequest request, Listener listener) {
      ClientCalls.asyncServerStreamingCall(
          channel.newCall(TaskServiceGrpc.getClaimDueMethod(), onGrpcThread()),
          request,
          new ClientResponseObserver<ClaimDueRequest, ClaimDueResponse>() {
            @Override
            public void beforeStart(ClientCallStreamObserver<ClaimDueRequest> stream) {
              call = stream;
            }

            @Override
            public void onNext(ClaimDueResponse message) {
              List<ClaimedTask> tasks = new ArrayList<>(message.getTasksList());
              listener.received(Follow.this, tasks, WorkResponse.getDefaultInstance());
            }

            @Override
            public void onError(Throwable thrown) {
              listener.ended(Follow.this, thrown);
            }

            @Override
            public void onCompleted() {
              listener.ended(Follow.this, null);
            }
          });
    }

    @Override
    boolean canSend() {
      return false;
    }

    @Override
    void stopClaiming() {
      cancel();
    }

    @Override
    void cancel() {
      call.cancel("dropped by the worker", null);
    }
  }

  /** What is heard is handed on at once, so it needs no thread of its own. */
  private static CallOptions onGrpcThread() {
    return CallOptions.DEFAULT.withExecutor(Runnable::run);
  }
}
