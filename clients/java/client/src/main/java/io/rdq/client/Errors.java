package io.rdq.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.StatusException;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.rdq.v1.ErrorReason;
import io.rdq.v1.ItemError;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;

/** Turns gRPC statuses and the errors of single items into exceptions. The one place that does. */
final class Errors {
  private static final String DOMAIN = "rdq";
  private static final String REASON_PREFIX = "ERROR_REASON_";

  private Errors() {}

  /** The exception for what a call threw. */
  static RdqException of(Throwable thrown) {
    if (thrown instanceof RdqException known) {
      return known;
    }
    Status status = closedIsUnavailable(Status.fromThrowable(thrown));
    String reason = "";
    Map<String, String> metadata = Map.of();
    Optional<Duration> retryAfter = Optional.empty();
    for (Any detail : details(thrown)) {
      try {
        if (detail.is(ErrorInfo.class)) {
          ErrorInfo info = detail.unpack(ErrorInfo.class);
          if (info.getDomain().equals(DOMAIN)) {
            reason = info.getReason();
            metadata = Map.copyOf(info.getMetadataMap());
          }
        } else if (detail.is(RetryInfo.class)) {
          RetryInfo info = detail.unpack(RetryInfo.class);
          retryAfter = Optional.of(Times.duration(info.getRetryDelay()));
        }
      } catch (InvalidProtocolBufferException ignored) {
        // A detail that cannot be read says nothing; the code still does.
      }
    }
    String message = Optional.ofNullable(status.getDescription()).orElse(status.getCode().name());
    Throwable cause = status.getCause();
    if (reason.isEmpty() && cause != null && cause.getMessage() != null) {
      message += ": " + cause.getMessage();
    }
    return of(new Refusal(status.getCode(), reason, message, metadata, retryAfter), thrown);
  }

  /** The exception for one item of a batch. */
  static RdqException of(ItemError error) {
    String reason = "";
    if (error.getReason() != ErrorReason.UNRECOGNIZED
        && error.getReason() != ErrorReason.ERROR_REASON_UNSPECIFIED) {
      reason = error.getReason().name().substring(REASON_PREFIX.length());
    }
    Status.Code code = Status.fromCodeValue(error.getCode()).getCode();
    Map<String, String> metadata = Map.copyOf(error.getMetadataMap());
    return of(new Refusal(code, reason, error.getMessage(), metadata, Optional.empty()), null);
  }

  /**
   * The exception for an item that its answer says nothing of: what was asked may have happened.
   */
  static RdqException missingResult() {
    String message = "the server's answer has no result for this";
    return of(new Refusal(Status.Code.INTERNAL, "", message, Map.of(), Optional.empty()), null);
  }

  /** The exception for a refusal; the base type where its reason is not known. */
  static RdqException of(Refusal refusal, Throwable cause) {
    return switch (refusal.reason()) {
      case "STALE_CLAIM" -> new StaleClaimException(refusal, cause);
      case "QUEUE_NOT_EMPTY" -> new QueueNotEmptyException(refusal, cause);
      case "STALE_CURSOR" -> new StaleCursorException(refusal, cause);
      case "NOT_FOUND" -> new TaskNotFoundException(refusal, cause);
      case "QUEUE_NOT_FOUND" -> new QueueNotFoundException(refusal, cause);
      case "ID_CONFLICT" -> new IdConflictException(refusal, cause);
      case "CONTENTION" -> new ContentionException(refusal, cause);
      case "INVALID_NAME" -> new InvalidNameException(refusal, cause);
      case "RESERVED_NAME" -> new ReservedNameException(refusal, cause);
      case "INVALID_ARGUMENT" -> new InvalidArgumentException(refusal, cause);
      case "INVALID_CURSOR" -> new InvalidCursorException(refusal, cause);
      case "CURSOR_BINDING_MISMATCH" -> new CursorBindingMismatchException(refusal, cause);
      case "PAYLOAD_TOO_LARGE" -> new PayloadTooLargeException(refusal, cause);
      case "UNSUPPORTED" -> new UnsupportedException(refusal, cause);
      case "STORAGE_UNAVAILABLE" -> new StorageUnavailableException(refusal, cause);
      case "CLOSED" -> new ClosedException(refusal, cause);
      case "OVERLOADED" -> new OverloadedException(refusal, cause);
      case "STORAGE_FULL" -> new StorageFullException(refusal, cause);
      case "MESSAGE_TOO_LARGE" -> new MessageTooLargeException(refusal, cause);
      case "INTERNAL" -> new InternalException(refusal, cause);
      case "UNAUTHENTICATED" -> new UnauthenticatedException(refusal, cause);
      case "PERMISSION_DENIED" -> new PermissionDeniedException(refusal, cause);
      case "DEADLINE_EXCEEDED" -> new DeadlineExceededException(refusal, cause);
      case "CAS_CONFLICT" -> new CasConflictException(refusal, cause);
      case "INVALID_SPEC" -> new InvalidSpecException(refusal, cause);
      case "OUTBOX_MISSING" -> new OutboxMissingException(refusal, cause);
      case "OUTBOX_CLAIM_MISMATCH" -> new OutboxClaimMismatchException(refusal, cause);
      case "MUTATION_CONFLICT" -> new MutationConflictException(refusal, cause);
      default -> new RdqException(refusal, cause);
    };
  }

  /**
   * A call that the end of its connection meets before it is written is UNKNOWN to gRPC. Only what
   * this process said itself has a cause, so no answer of a server is taken for it.
   */
  private static Status closedIsUnavailable(Status status) {
    boolean isClosed =
        status.getCode() == Status.Code.UNKNOWN
            && status.getCause() instanceof ClosedChannelException;
    return isClosed ? Status.UNAVAILABLE.withDescription("the connection was closed") : status;
  }

  private static Iterable<Any> details(Throwable thrown) {
    boolean hasStatus =
        thrown instanceof StatusRuntimeException || thrown instanceof StatusException;
    com.google.rpc.Status full = hasStatus ? StatusProto.fromThrowable(thrown) : null;
    return full == null ? java.util.List.of() : full.getDetailsList();
  }
}
