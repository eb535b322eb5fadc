package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.protobuf.ByteString;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import io.rdq.v1.CompleteRequest;
import io.rdq.v1.TaskServiceGrpc;
import java.time.Duration;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Errors are types. */
class ErrorScenariosTest extends Scenario {
  @Override
  String[] serverOptions() {
    return new String[] {"--require-declared-queues", "true"};
  }

  @Test
  void errorsByReason() {
    operator.putQueue(QUEUE, QueueConfig.builder().maxPayloadBytes(10).build());
    producer.enqueue(NewTask.builder(QUEUE, "send").id("one").build());
    producer.enqueue(NewTask.builder(QUEUE, "send").id("two").build());

    StaleClaimException stale =
        assertThrows(
            StaleClaimException.class,
            () ->
                new Calls(channel(), Duration.ofSeconds(30))
                    .unary(
                        TaskServiceGrpc.getCompleteMethod(),
                        CompleteRequest.newBuilder()
                            .setId("one")
                            .setClaimToken(ByteString.copyFromUtf8("no token"))
                            .build()));
    assertEquals("one", stale.taskId());
    assertEquals(Status.Code.FAILED_PRECONDITION, stale.code());
    assertEquals("STALE_CLAIM", stale.reason());
    assertFalse(stale.outcomeUnknown());
    assertFalse(stale.isRetryable());
    assertEquals(
        QUEUE,
        assertThrows(QueueNotEmptyException.class, () -> operator.deleteQueue(QUEUE)).queue());
    assertEquals(
        "nobody", assertThrows(TaskNotFoundException.class, () -> operator.get("nobody")).taskId());
    assertEquals(
        "undeclared",
        assertThrows(QueueNotFoundException.class, () -> operator.getQueue("undeclared")).queue());
    assertThrows(
        QueueNotFoundException.class, () -> producer.enqueue(NewTask.of("undeclared", "send", "")));
    operator.putQueue("other", QueueConfig.builder().build());
    assertThrows(
        IdConflictException.class,
        () -> producer.enqueue(NewTask.builder("other", "send").id("one").build()));
    assertThrows(InvalidNameException.class, () -> producer.enqueue(NewTask.of(QUEUE, " ", "")));
    assertThrows(
        ReservedNameException.class, () -> producer.enqueue(NewTask.of("__rdq_mine", "send", "")));
    assertThrows(
        InvalidArgumentException.class,
        () -> producer.enqueue(NewTask.builder(QUEUE, "send").maxAttempts(0).build()));
    Pages<Task> pages = operator.list(TaskQuery.of(QUEUE).pageSize(1));
    assertThrows(InvalidCursorException.class, () -> pages.page("no token"));
    String next = pages.page("").nextPageToken();
    assertThrows(
        CursorBindingMismatchException.class,
        () -> operator.list(TaskQuery.of("other")).page(next));
    PayloadTooLargeException large =
        assertThrows(
            PayloadTooLargeException.class,
            () -> producer.enqueue(NewTask.of(QUEUE, "send", "eleven byte")));
    assertEquals(10, large.limitBytes());
    assertEquals(11, large.sizeBytes());
    MessageTooLargeException message =
        assertThrows(
            MessageTooLargeException.class,
            () -> producer.enqueue(NewTask.of(QUEUE, "send", new byte[9 << 20])));
    assertEquals(8 << 20, message.limitBytes());
    assertFalse(message.isRetryable());

    server.kill();
    RdqClient hasty =
        open(RdqClient.builder(server.address()).callTimeout(Duration.ofMillis(300)).build());
    RdqException gone = assertThrows(RdqException.class, () -> hasty.operator().get("one"));
    assertSame(RdqException.class, gone.getClass());
    // The second where the machine is so slow that not even a refusal comes in time.
    assertTrue(
        Set.of(Status.Code.UNAVAILABLE, Status.Code.DEADLINE_EXCEEDED).contains(gone.code()));
    assertTrue(gone.isRetryable());
    server.restart();

    GrpcProxy proxy =
        open(
            new GrpcProxy(
                server,
                new GrpcProxy.Rules() {
                  @Override
                  public void admit(String method) {
                    throw StatusProto.toStatusRuntimeException(
                        com.google.rpc.Status.newBuilder()
                            .setCode(Status.Code.FAILED_PRECONDITION.value())
                            .setMessage("of a newer contract")
                            .addDetails(
                                Any.pack(
                                    ErrorInfo.newBuilder()
                                        .setDomain("rdq")
                                        .setReason("NEWER_THAN_THIS")
                                        .putMetadata("what", "this")
                                        .build()))
                            .build());
                  }
                }));
    RdqClient behind = connect(proxy.address());
    RdqException newer = assertThrows(RdqException.class, () -> behind.operator().get("one"));
    assertSame(RdqException.class, newer.getClass());
    assertEquals("NEWER_THAN_THIS", newer.reason());
    assertEquals(Status.Code.FAILED_PRECONDITION, newer.code());
    assertEquals("of a newer contract", newer.getMessage());
    assertEquals("this", newer.metadata().get("what"));
  }
}
