package io.rdq.client;

import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.HandlerRegistry;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerMethodDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;

/** A gRPC proxy before a server, which may refuse methods and change answers. */
final class GrpcProxy implements AutoCloseable {
  /** What becomes of calls. */
  interface Rules {
    /** Throws what the call is answered with, in place of being passed on. */
    default void admit(String method) {}

    /** What is passed on of an answer. */
    default byte[] answer(String method, byte[] message) {
      return message;
    }
  }

  private final ManagedChannel channel;
  private final Server server;

  GrpcProxy(TestServer behind, Rules rules) {
    channel = ManagedChannelBuilder.forTarget(behind.address()).usePlaintext().build();
    try {
      server =
          NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0))
              .maxInboundMessageSize(16 << 20)
              .fallbackHandlerRegistry(
                  new HandlerRegistry() {
                    @Override
                    public ServerMethodDefinition<?, ?> lookupMethod(String name, String host) {
                      return ServerMethodDefinition.create(bytes(name), new Forward(rules));
                    }
                  })
              .build()
              .start();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  String address() {
    return "127.0.0.1:" + server.getPort();
  }

  @Override
  public void close() {
    server.shutdownNow();
    channel.shutdownNow();
  }

  private static MethodDescriptor<byte[], byte[]> bytes(String name) {
    MethodDescriptor.Marshaller<byte[]> asTheyAre =
        new MethodDescriptor.Marshaller<>() {
          @Override
          public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
          }

          @Override
          public byte[] parse(InputStream stream) {
            try {
              return stream.readAllBytes();
            } catch (IOException error) {
              throw new UncheckedIOException(error);
            }
          }
        };
    return MethodDescriptor.<byte[], byte[]>newBuilder(asTheyAre, asTheyAre)
        .setFullMethodName(name)
        .setType(MethodDescriptor.MethodType.UNKNOWN)
        .build();
  }

  private final class Forward implements ServerCallHandler<byte[], byte[]> {
    private final Rules rules;

    private Forward(Rules rules) {
      this.rules = rules;
    }

    @Override
    public ServerCall.Listener<byte[]> startCall(
        ServerCall<byte[], byte[]> from, Metadata headers) {
      String method = from.getMethodDescriptor().getBareMethodName();
      try {
        rules.admit(method);
      } catch (StatusRuntimeException refusal) {
        Metadata trailers = refusal.getTrailers();
        from.close(refusal.getStatus(), trailers == null ? new Metadata() : trailers);
        return new ServerCall.Listener<>() {};
      }
      ClientCall<byte[], byte[]> to =
          channel.newCall(from.getMethodDescriptor(), CallOptions.DEFAULT);
      to.start(
          new ClientCall.Listener<>() {
            @Override
            public void onHeaders(Metadata answer) {
              from.sendHeaders(answer);
            }

            @Override
            public void onMessage(byte[] message) {
              from.sendMessage(rules.answer(method, message));
              to.request(1);
            }

            @Override
            public void onClose(Status status, Metadata trailers) {
              if (!from.isCancelled()) {
                from.close(status, trailers);
              }
            }
          },
          headers);
      to.request(1);
      from.request(1);
      return new ServerCall.Listener<>() {
        @Override
        public void onMessage(byte[] message) {
          to.sendMessage(message);
          from.request(1);
        }

        @Override
        public void onHalfClose() {
          to.halfClose();
        }

        @Override
        public void onCancel() {
          to.cancel("the client went away", null);
        }
      };
    }
  }
}
