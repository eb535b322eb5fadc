package io.rdq.client;

import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.stub.AbstractStub;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * A connection to an rdq server, and what there is to do with it: {@link #producer} enqueues tasks,
 * {@link #worker} runs them, {@link #operator} looks after them. {@link #subscription} reads
 * events, {@link #lock} keeps locks, {@link #outboxRelay} carries messages elsewhere, and {@link
 * #stub} is for all else.
 *
 * <p>Safe for many threads; one for a process is enough. It connects with the first call.
 */
public final class RdqClient implements AutoCloseable {
  private final ManagedChannel channel;
  private final boolean ownsChannel;
  private final String address;
  private final Calls calls;
  private final Channel stubs;
  private final Producer producer;
  private final Operator operator;

  private RdqClient(Builder builder) {
    ownsChannel = builder.channel == null;
    channel = ownsChannel ? channel(builder.address) : builder.channel;
    address = builder.address;
    calls = new Calls(channel, builder.callTimeout);
    stubs = ClientInterceptors.intercept(channel, new UnaryDeadline(builder.callTimeout));
    producer = new Producer(calls);
    operator = new Operator(calls);
  }

  /**
   * Connects to the server that the environment names in {@code RDQ_SERVER}, as the address of
   * {@link #connect(String)}; to {@code 127.0.0.1:7420} if it names none.
   */
  public static RdqClient connect() {
    String named = System.getenv("RDQ_SERVER");
    return connect(named == null || named.isEmpty() ? "127.0.0.1:7420" : named);
  }

  /**
   * Connects to a server.
   *
   * @param address {@code host:port} or {@code http://host:port} for plain text, {@code
   *     https://host:port} for TLS
   */
  public static RdqClient connect(String address) {
    return builder(address).build();
  }

  /** As {@link #connect(String)}, with options. */
  public static Builder builder(String address) {
    return new Builder(Objects.requireNonNull(address, "address"), null);
  }

  /**
   * Uses a channel of the caller's, for all that gRPC has to set: credentials, interceptors, a
   * resolver. {@link #close} leaves it open.
   */
  public static Builder builder(ManagedChannel channel) {
    return new Builder(null, Objects.requireNonNull(channel, "channel"));
  }

  /** Enqueues tasks. */
  public Producer producer() {
    return producer;
  }

  /** The operator's calls: reads, cancels, redrives and configures. */
  public Operator operator() {
    return operator;
  }

  /** A worker to set up, for these queues: 1 to 64. */
  public Worker.Builder worker(String... queues) {
    return new Worker.Builder(channel, queues);
  }

  /**
   * A subscription to set up: a consumer's reading of a stream of events.
   *
   * <p>It has a connection of its own, but for a client of a channel of the caller's, which it then
   * uses: what it did not read yet, up to a window of HTTP/2, may hold up other calls there.
   */
  public Subscription.Builder subscription(String stream, String consumer) {
    return new Subscription.Builder(
        calls, ownsChannel ? () -> channel(address) : null, stream, consumer);
  }

  /** A lock to set up, by its name. */
  public LockGuard.Builder lock(String name) {
    return new LockGuard.Builder(calls, name);
  }

  /** A relay to set up, which carries the messages of an outbox elsewhere. */
  public OutboxRelay.Builder outboxRelay() {
    return new OutboxRelay.Builder(calls);
  }

  /**
   * A generated stub on this connection, such as {@code
   * client.stub(StreamServiceGrpc::newBlockingStub)}.
   *
   * <p>A unary call has the client's {@code callTimeout} where the stub has no deadline. Nothing is
   * repeated, since not every call may be: a {@code Publish} or a {@code Commit} may have happened
   * although its answer was lost. {@link RdqException#of} makes an exception of this client of what
   * is thrown.
   */
  public <S extends AbstractStub<S>> S stub(Function<Channel, S> make) {
    return make.apply(stubs);
  }

  /** Ends the connection. Stop workers before; what they still hold comes back when leases end. */
  @Override
  public void close() {
    if (!ownsChannel) {
      return;
    }
    channel.shutdown();
    try {
      if (!channel.awaitTermination(5, TimeUnit.SECONDS)) {
        channel.shutdownNow();
      }
    } catch (InterruptedException interrupted) {
      channel.shutdownNow();
      Thread.currentThread().interrupt();
    }
  }

  private static ManagedChannel channel(String address) {
    boolean tls = address.startsWith("https://");
    String target = address.replaceFirst("^https?://", "").replaceFirst("/$", "");
    ManagedChannelBuilder<?> builder = ManagedChannelBuilder.forTarget(target);
    if (!tls) {
      builder.usePlaintext();
    }
    // A connection that silently leads nowhere is noticed within half a minute.
    return builder
        .keepAliveTime(20, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS)
        .userAgent("rdq-client-java/0.1.0")
        .build();
  }

  /** Options of a client. */
  public static final class Builder {
    private final String address;
    private final ManagedChannel channel;
    private Duration callTimeout = Duration.ofSeconds(30);

    private Builder(String address, ManagedChannel channel) {
      this.address = address;
      this.channel = channel;
    }

    /** How long a call may take, all its tries together; 30 seconds if unset. */
    public Builder callTimeout(Duration timeout) {
      if (timeout.isNegative() || timeout.isZero()) {
        throw new IllegalArgumentException("callTimeout must be above zero");
      }
      callTimeout = timeout;
      return this;
    }

    /** The client. */
    public RdqClient build() {
      return new RdqClient(this);
    }
  }
}
