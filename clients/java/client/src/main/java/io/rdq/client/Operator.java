package io.rdq.client;

import io.grpc.MethodDescriptor;
import io.rdq.v1.CancelRequest;
import io.rdq.v1.CancelResponse;
import io.rdq.v1.DeleteQueueRequest;
import io.rdq.v1.DlqListResponse;
import io.rdq.v1.GetQueueRequest;
import io.rdq.v1.GetRequest;
import io.rdq.v1.ListQueuesRequest;
import io.rdq.v1.ListQueuesResponse;
import io.rdq.v1.ListResponse;
import io.rdq.v1.PauseQueueRequest;
import io.rdq.v1.PurgeRequest;
import io.rdq.v1.PurgeResponse;
import io.rdq.v1.PutQueueRequest;
import io.rdq.v1.QueueServiceGrpc;
import io.rdq.v1.RedriveRequest;
import io.rdq.v1.RedriveResponse;
import io.rdq.v1.ResumeQueueRequest;
import io.rdq.v1.StatsRequest;
import io.rdq.v1.TaskServiceGrpc;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongConsumer;
import java.util.function.ToLongFunction;

/**
 * The operator's calls. Safe for many threads. Each throws an {@link RdqException} where it is
 * refused, or could not be done in time.
 */
public final class Operator {
  private final Calls calls;

  Operator(Calls calls) {
    this.calls = calls;
  }

  /**
   * Reads a task in any status, with its whole history.
   *
   * @throws TaskNotFoundException if there is none
   */
  public Task get(String id) {
    GetRequest request = GetRequest.newBuilder().setId(id).build();
    return new Task(calls.unary(TaskServiceGrpc.getGetMethod(), request).getTask());
  }

  /** Lists tasks of a queue, newest first. */
  public Pages<Task> list(TaskQuery query) {
    return new Pages<>(
        pageToken -> {
          ListResponse answer = calls.unary(TaskServiceGrpc.getListMethod(), query.page(pageToken));
          return page(answer.getTasksList(), answer.getNextPageToken());
        });
  }

  /**
   * Ends a task that waits or runs. Its handler is stopped. A finished one does not change.
   *
   * @throws TaskNotFoundException if there is none
   */
  public Cancellation cancel(String id) {
    CancelRequest request = CancelRequest.newBuilder().setId(id).build();
    CancelResponse answer = calls.unary(TaskServiceGrpc.getCancelMethod(), request);
    return new Cancellation(TaskStatus.of(answer.getStatus()), answer.getCancelled());
  }

  /** Lists dead letters of a queue, newest first. */
  public Pages<Task> dlqList(DlqQuery query) {
    return new Pages<>(
        pageToken -> {
          DlqListResponse answer =
              calls.unary(TaskServiceGrpc.getDlqListMethod(), query.page(pageToken));
          return page(answer.getTasksList(), answer.getNextPageToken());
        });
  }

  private static Page<Task> page(List<io.rdq.v1.Task> tasks, String next) {
    return new Page<>(tasks.stream().map(Task::new).toList(), next);
  }

  /** Makes dead letters due again, now, and returns how many. */
  public long redrive(String queue, Selector selector) {
    return redrive(queue, selector, RedriveOptions.defaults());
  }

  /**
   * Makes dead letters due again, and returns how many.
   *
   * @throws RdqException with {@link RdqException#partialCount} where it failed half way
   */
  public long redrive(String queue, Selector selector, RedriveOptions options) {
    RedriveRequest request =
        options.proto.toBuilder().setQueue(queue).setSelector(selector.toProto()).build();
    return count(
        TaskServiceGrpc.getRedriveMethod(), request, RedriveResponse::getCount, options.onCount);
  }

  /** Removes dead letters for good, and returns how many. */
  public long purge(String queue, Selector selector) {
    return purge(queue, selector, PurgeOptions.defaults());
  }

  /**
   * Removes dead letters for good, and returns how many.
   *
   * @throws RdqException with {@link RdqException#partialCount} where it failed half way
   */
  public long purge(String queue, Selector selector, PurgeOptions options) {
    PurgeRequest request =
        options.proto.toBuilder().setQueue(queue).setSelector(selector.toProto()).build();
    return count(
        TaskServiceGrpc.getPurgeMethod(), request, PurgeResponse::getCount, options.onCount);
  }

  private <Q extends com.google.protobuf.MessageLite, R> long count(
      MethodDescriptor<Q, R> method, Q request, ToLongFunction<R> countOf, LongConsumer onCount) {
    long[] last = {-1};
    try {
      calls.progress(
          method,
          request,
          answer -> {
            last[0] = countOf.applyAsLong(answer);
            onCount.accept(last[0]);
          });
    } catch (RdqException error) {
      throw error.withPartialCount(last[0]);
    }
    return Math.max(0, last[0]);
  }

  /** Counts the tasks of these queues, up to 64, or of all, up to 1,000, if none is named. */
  public List<QueueStats> stats(String... queues) {
    StatsRequest request = StatsRequest.newBuilder().addAllQueues(Arrays.asList(queues)).build();
    return calls.unary(TaskServiceGrpc.getStatsMethod(), request).getQueuesList().stream()
        .map(QueueStats::of)
        .toList();
  }

  /** Stores the configuration of a queue, in place of what was stored before. */
  public Queue putQueue(String name, QueueConfig config) {
    PutQueueRequest request =
        PutQueueRequest.newBuilder().setName(name).setConfig(config.toProto()).build();
    return Queue.of(calls.unary(QueueServiceGrpc.getPutQueueMethod(), request).getQueue());
  }

  /**
   * Reads the configuration of a queue. One that nobody configured has the defaults.
   *
   * @throws QueueNotFoundException if the server demands that queues are declared, and it is not
   */
  public Queue getQueue(String name) {
    GetQueueRequest request = GetQueueRequest.newBuilder().setName(name).build();
    return Queue.of(calls.unary(QueueServiceGrpc.getGetQueueMethod(), request).getQueue());
  }

  /** Lists the queues that are configured or hold tasks, by name. */
  public Pages<Queue> listQueues() {
    return new Pages<>(
        pageToken -> {
          ListQueuesRequest request =
              ListQueuesRequest.newBuilder().setPageToken(pageToken).build();
          ListQueuesResponse answer = calls.unary(QueueServiceGrpc.getListQueuesMethod(), request);
          List<Queue> queues = answer.getQueuesList().stream().map(Queue::of).toList();
          return new Page<>(queues, answer.getNextPageToken());
        });
  }

  /**
   * Removes the stored configuration of a queue, and says whether there was one.
   *
   * @throws QueueNotEmptyException if the queue holds tasks, in whatever status
   */
  public boolean deleteQueue(String name) {
    DeleteQueueRequest request = DeleteQueueRequest.newBuilder().setName(name).build();
    return calls.unary(QueueServiceGrpc.getDeleteQueueMethod(), request).getExisted();
  }

  /** Stops claims from a queue; admission goes on. */
  public Queue pauseQueue(String name) {
    PauseQueueRequest request = PauseQueueRequest.newBuilder().setName(name).build();
    return Queue.of(calls.unary(QueueServiceGrpc.getPauseQueueMethod(), request).getQueue());
  }

  /** Lets claims from a queue go on. */
  public Queue resumeQueue(String name) {
    ResumeQueueRequest request = ResumeQueueRequest.newBuilder().setName(name).build();
    return Queue.of(calls.unary(QueueServiceGrpc.getResumeQueueMethod(), request).getQueue());
  }
}
