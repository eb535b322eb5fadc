package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.rdq.v1.ErrorReason;
import io.rdq.v1.ItemError;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ErrorsTest {
  static StatusRuntimeException status(
      Status.Code code, String domain, String reason, Map<String, String> metadata) {
    return StatusProto.toStatusRuntimeException(
        com.google.rpc.Status.newBuilder()
            .setCode(code.value())
            .setMessage("refused")
            .addDetails(
                Any.pack(
                    ErrorInfo.newBuilder()
                        .setDomain(domain)
                        .setReason(reason)
                        .putAllMetadata(metadata)
                        .build()))
            .addDetails(
                Any.pack(
                    RetryInfo.newBuilder()
                        .setRetryDelay(Times.proto(Duration.ofMillis(1500)))
                        .build()))
            .build());
  }

  @Test
  void everyReasonOfTheContractHasATypeOfItsOwn() {
    Set<Class<?>> types = new HashSet<>();
    for (ErrorReason reason : ErrorReason.values()) {
      if (reason == ErrorReason.UNRECOGNIZED || reason == ErrorReason.ERROR_REASON_UNSPECIFIED) {
        continue;
      }
      String name = reason.name().substring("ERROR_REASON_".length());
      RdqException ofCall = Errors.of(status(Status.Code.INTERNAL, "rdq", name, Map.of()));
      RdqException ofItem =
          Errors.of(ItemError.newBuilder().setCode(9).setReason(reason).setMessage("no").build());
      assertNotSame(RdqException.class, ofCall.getClass(), name);
      assertSame(ofCall.getClass(), ofItem.getClass(), name);
      assertEquals(name, ofCall.reason());
      assertEquals(Status.Code.FAILED_PRECONDITION, ofItem.code());
      assertTrue(types.add(ofCall.getClass()), name);
    }
    assertEquals(ErrorReason.values().length - 2, types.size());
  }

  @Test
  void whatIsNotOfTheContractIsTheBaseType() {
    RdqException newer = Errors.of(status(Status.Code.ABORTED, "rdq", "NEWER", Map.of("a", "b")));
    assertSame(RdqException.class, newer.getClass());
    assertEquals("NEWER", newer.reason());
    assertEquals(Map.of("a", "b"), newer.metadata());
    RdqException foreign =
        Errors.of(status(Status.Code.ABORTED, "other.example", "STALE_CLAIM", Map.of()));
    assertSame(RdqException.class, foreign.getClass());
    assertEquals("", foreign.reason());
    RdqException bare = Errors.of(Status.DATA_LOSS.asRuntimeException());
    assertSame(RdqException.class, bare.getClass());
    assertEquals("DATA_LOSS", bare.getMessage());
    RdqException newerItem =
        Errors.of(ItemError.newBuilder().setCode(5).setReasonValue(999).build());
    assertSame(RdqException.class, newerItem.getClass());
    assertEquals(Status.Code.NOT_FOUND, newerItem.code());
    RdqException bareItem = Errors.of(ItemError.newBuilder().setCode(14).build());
    assertSame(RdqException.class, bareItem.getClass());
    assertEquals("", bareItem.reason());
  }

  @Test
  void onlyWhatCanHelpIsRetryable() {
    for (String reason : new String[] {"STORAGE_UNAVAILABLE", "CLOSED", ""}) {
      assertTrue(Errors.of(status(Status.Code.UNAVAILABLE, "rdq", reason, Map.of())).isRetryable());
    }
    assertTrue(Errors.of(status(Status.Code.ABORTED, "rdq", "CONTENTION", Map.of())).isRetryable());
    assertFalse(Errors.of(status(Status.Code.ABORTED, "rdq", "CAS", Map.of())).isRetryable());
    RdqException overloaded =
        Errors.of(status(Status.Code.RESOURCE_EXHAUSTED, "rdq", "OVERLOADED", Map.of()));
    assertTrue(overloaded.isRetryable());
    assertEquals(Optional.of(Duration.ofMillis(1500)), overloaded.retryAfter());
    for (String reason : new String[] {"STORAGE_FULL", "MESSAGE_TOO_LARGE", ""}) {
      assertFalse(
          Errors.of(status(Status.Code.RESOURCE_EXHAUSTED, "rdq", reason, Map.of())).isRetryable());
    }
    assertFalse(Errors.of(Status.INTERNAL.asRuntimeException()).isRetryable());
  }

  @Test
  void aClosedConnectionIsUnavailableAsAnyOther() {
    Status closed = Status.UNKNOWN.withDescription("channel closed");
    RdqException unsent =
        Errors.of(closed.withCause(new ClosedChannelException()).asRuntimeException());
    assertEquals(Status.Code.UNAVAILABLE, unsent.code());
    assertEquals("the connection was closed", unsent.getMessage());
    assertTrue(unsent.isRetryable());
    assertTrue(unsent.outcomeUnknown());
    // A server can say the same words, and mean something else.
    RdqException said = Errors.of(closed.asRuntimeException());
    assertEquals(Status.Code.UNKNOWN, said.code());
    assertFalse(said.isRetryable());
    RdqException other =
        Errors.of(Status.UNKNOWN.withCause(new IllegalStateException("x")).asRuntimeException());
    assertEquals(Status.Code.UNKNOWN, other.code());
  }

  @Test
  void anUnknownOutcomeIsSaidOrFollowsFromALostAnswer() {
    Map<String, String> unknown = Map.of("outcome_unknown", "true");
    assertTrue(
        Errors.of(status(Status.Code.UNAVAILABLE, "rdq", "STORAGE_UNAVAILABLE", unknown))
            .outcomeUnknown());
    assertFalse(
        Errors.of(status(Status.Code.UNAVAILABLE, "rdq", "STORAGE_UNAVAILABLE", Map.of()))
            .outcomeUnknown());
    assertTrue(Errors.of(Status.UNAVAILABLE.asRuntimeException()).outcomeUnknown());
    assertFalse(Errors.of(Status.INVALID_ARGUMENT.asRuntimeException()).outcomeUnknown());
  }
}
