package io.rdq.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import io.rdq.v1.ExtendLeaseResult;
import io.rdq.v1.ExtendLeasesRequest;
import io.rdq.v1.ExtendLeasesResponse;
import io.rdq.v1.GetCapabilitiesRequest;
import io.rdq.v1.GetCapabilitiesResponse;
import io.rdq.v1.ResolveBatchRequest;
import io.rdq.v1.ResolveBatchResponse;
import io.rdq.v1.ResolveResult;
import io.rdq.v1.TaskServiceGrpc;
import java.util.List;
import java.util.concurrent.TimeUnit;

/**
 * Sends outcomes and heartbeats by calls of their own, where no {@code Work} stream is open: a few
 * at a time, each once. Belongs to the loop's thread; answers come on threads of gRPC.
 */
final class UnarySender {
  /** Hears the answers. */
  interface Listener {
    void resolved(List<Delivery> deliveries, List<ResolveResult> results);

    void resolveFailed(List<Delivery> deliveries, RdqException error);

    void extended(List<Heartbeat> beats, List<ExtendLeaseResult> results);

    void extendFailed(List<Heartbeat> beats, RdqException error);

    /** The server speaks this version of the contract. */
    void contractIs(String version);

    void contractUnknown(RdqException error);
  }

  private static final int CALLS_MAX = 4;
  private static final long SECONDS_MAX = 10;

  private final Channel channel;
  private final Listener listener;
  private int resolving;
  private int extending;

  UnarySender(Channel channel, Listener listener) {
    this.channel = channel;
    this.listener = listener;
  }

  boolean canResolve() {
    return resolving < CALLS_MAX;
  }

  boolean canExtend() {
    return extending < CALLS_MAX;
  }

  /** To be called for each answer to {@link #resolve}. */
  void resolveEnded() {
    resolving--;
  }

  /** To be called for each answer to {@link #extend}. */
  void extendEnded() {
    extending--;
  }

  void resolve(List<Delivery> deliveries) {
    resolving++;
    ResolveBatchRequest.Builder request = ResolveBatchRequest.newBuilder();
    deliveries.forEach(delivery -> request.addResolutions(delivery.resolution));
    ClientCalls.asyncUnaryCall(
        channel.newCall(TaskServiceGrpc.getResolveBatchMethod(), options()),
        request.build(),
        new Answer<ResolveBatchResponse>() {
          @Override
          void answered(ResolveBatchResponse response) {
            listener.resolved(deliveries, response.getResultsList());
          }

          @Override
          void failed(RdqException error) {
            listener.resolveFailed(deliveries, error);
          }
        });
  }

  void extend(List<Heartbeat> beats) {
    extending++;
    ExtendLeasesRequest.Builder request = ExtendLeasesRequest.newBuilder();
    beats.forEach(beat -> request.addLeases(beat.request()));
    ClientCalls.asyncUnaryCall(
        channel.newCall(TaskServiceGrpc.getExtendLeasesMethod(), options()),
        request.build(),
        new Answer<ExtendLeasesResponse>() {
          @Override
          void answered(ExtendLeasesResponse response) {
            listener.extended(beats, response.getResultsList());
          }

          @Override
          void failed(RdqException error) {
            listener.extendFailed(beats, error);
          }
        });
  }

  /** Asks which version of the contract the server speaks. */
  void askContract() {
    ClientCalls.asyncUnaryCall(
        channel.newCall(TaskServiceGrpc.getGetCapabilitiesMethod(), options()),
        GetCapabilitiesRequest.getDefaultInstance(),
        new Answer<GetCapabilitiesResponse>() {
          @Override
          void answered(GetCapabilitiesResponse response) {
            listener.contractIs(response.getContractVersion());
          }

          @Override
          void failed(RdqException error) {
            listener.contractUnknown(error);
          }
        });
  }

  private static CallOptions options() {
    return CallOptions.DEFAULT
        .withDeadlineAfter(SECONDS_MAX, TimeUnit.SECONDS)
        .withExecutor(Runnable::run);
  }

  /** The answer to a unary call: one message, or an error. */
  private abstract static class Answer<R> implements StreamObserver<R> {
    private R response;

    abstract void answered(R response);

    abstract void failed(RdqException error);

    @Override
    public void onNext(R message) {
      response = message;
    }

    @Override
    public void onError(Throwable thrown) {
      failed(Errors.of(thrown));
    }

    @Override
    public void onCompleted() {
      answered(response);
    }
  }
}
