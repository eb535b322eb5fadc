package io.rdq.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.MethodDescriptor;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** Gives the unary calls of stubs a deadline where the caller set none. */
record UnaryDeadline(Duration deadline) implements ClientInterceptor {
  @Override
  public <Q, R> ClientCall<Q, R> interceptCall(
      MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
    boolean needsOne =
        method.getType() == MethodDescriptor.MethodType.UNARY && options.getDeadline() == null;
    CallOptions bounded =
        needsOne ? options.withDeadlineAfter(Times.nanos(deadline), TimeUnit.NANOSECONDS) : options;
    return next.newCall(method, bounded);
  }
}
