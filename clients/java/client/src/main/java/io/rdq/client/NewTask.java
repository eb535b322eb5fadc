package io.rdq.client;

import com.google.protobuf.ByteString;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * A task to enqueue: the queue and the handler's name, and all else optional. Immutable.
 *
 * <p>Its values are checked by the server; one that is refused is an {@link RdqException} of the
 * call.
 */
public final class NewTask {
  private final io.rdq.v1.Task proto;

  private NewTask(io.rdq.v1.Task proto) {
    this.proto = proto;
  }

  /** A task for a handler, with its payload in UTF-8. */
  public static NewTask of(String queue, String handlerRef, String payload) {
    return builder(queue, handlerRef).payload(payload).build();
  }

  /** A task for a handler, with its payload. */
  public static NewTask of(String queue, String handlerRef, byte[] payload) {
    return builder(queue, handlerRef).payload(payload).build();
  }

  /** A task for a handler, to set up. */
  public static Builder builder(String queue, String handlerRef) {
    return new Builder(io.rdq.v1.Task.newBuilder().setQueue(queue).setHandlerRef(handlerRef));
  }

  /** A whole envelope as the contract has it, with fields that this client does not know too. */
  public static NewTask fromProto(io.rdq.v1.Task task) {
    return new NewTask(task);
  }

  /** The envelope as the contract has it. */
  public io.rdq.v1.Task toProto() {
    return proto;
  }

  /** What a task is to have. */
  public static final class Builder {
    private final io.rdq.v1.Task.Builder task;

    private Builder(io.rdq.v1.Task.Builder task) {
      this.task = task;
    }

    /**
     * Names the task for life, across all queues: 1 to 255 bytes of UTF-8. A ULID of the client's
     * if unset. The same id again admits nothing.
     */
    public Builder id(String id) {
      task.setId(id);
      return this;
    }

    /** The version of the handler that is meant. */
    public Builder handlerVersion(String version) {
      task.setHandlerVersion(version);
      return this;
    }

    /** What the handler gets; empty if unset, at most 1 MiB unless the queue says otherwise. */
    public Builder payload(byte[] payload) {
      task.setPayload(ByteString.copyFrom(payload));
      return this;
    }

    /** What the handler gets, as UTF-8. */
    public Builder payload(String payload) {
      return payload(payload.getBytes(StandardCharsets.UTF_8));
    }

    /** What the payload is, such as {@code application/json}; carried, never interpreted. */
    public Builder contentType(String contentType) {
      task.setPayloadContentType(contentType);
      return this;
    }

    /** Adds a header. */
    public Builder header(String name, String value) {
      task.putHeaders(name, value);
      return this;
    }

    /** Adds headers; keys and values together at most 64 KiB. */
    public Builder headers(Map<String, String> headers) {
      task.putAllHeaders(headers);
      return this;
    }

    /** Higher goes first; 0 if unset. */
    public Builder priority(int priority) {
      task.setPriority(priority);
      return this;
    }

    /** Due this long after it was admitted, by the storage's clock. Wins over {@link #dueAt}. */
    public Builder delay(Duration delay) {
      task.setDelay(Times.proto(delay));
      return this;
    }

    /** When it is due; now if neither this nor {@link #delay} is set. */
    public Builder dueAt(Instant due) {
      task.setNextAttemptAt(Times.proto(due));
      return this;
    }

    /**
     * Dead, unless finished, this long after it was admitted, by the storage's clock. Wins over
     * {@link #expiresAt}.
     */
    public Builder expiresIn(Duration expiry) {
      task.setExpiresIn(Times.proto(expiry));
      return this;
    }

    /** When it is dead unless finished; never if neither this nor {@link #expiresIn} is set. */
    public Builder expiresAt(Instant expiry) {
      task.setExpiresAt(Times.proto(expiry));
      return this;
    }

    /** How many attempts it has, at least 1; the queue's if unset. */
    public Builder maxAttempts(int attempts) {
      task.setMaxAttempts(attempts);
      return this;
    }

    /** The lease of its claims, 10 milliseconds to 12 hours; the queue's if unset. */
    public Builder lease(Duration lease) {
      task.setLease(Times.proto(lease));
      return this;
    }

    /** The backoff after its first failure, above zero; the queue's if unset. */
    public Builder initialBackoff(Duration backoff) {
      task.setInitialBackoff(Times.proto(backoff));
      return this;
    }

    /** How long it is kept as a dead letter, above zero; the queue's if unset. */
    public Builder retentionDead(Duration retention) {
      task.setRetentionDead(Times.proto(retention));
      return this;
    }

    /** The task. */
    public NewTask build() {
      return new NewTask(task.build());
    }
  }
}
