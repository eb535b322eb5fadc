package io.rdq.client;

import io.rdq.v1.EnqueueBatchRequest;
import io.rdq.v1.EnqueueBatchResponse;
import io.rdq.v1.EnqueueRequest;
import io.rdq.v1.EnqueueResult.OutcomeCase;
import io.rdq.v1.TaskServiceGrpc;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/**
 * Enqueues tasks. Each has its id before the first try, so that a try whose answer was lost is
 * repeated without admitting anything twice. Where OpenTelemetry is on the class path, the active
 * span rides along in the headers.
 *
 * <p>Safe for many threads. Calls block, and end early with an {@link RdqException} when their
 * thread is interrupted.
 */
public final class Producer {
  private final Calls calls;

  Producer(Calls calls) {
    this.calls = calls;
  }

  /**
   * Enqueues a task.
   *
   * @throws IdConflictException if its id is taken in another queue
   * @throws RdqException if it is refused for another reason, or cannot be stored in time
   */
  public Admission enqueue(NewTask task) {
    EnqueueRequest request = EnqueueRequest.newBuilder().setTask(prepared(task)).build();
    return Admission.of(calls.unary(TaskServiceGrpc.getEnqueueMethod(), request));
  }

  /**
   * Enqueues many tasks, in as many requests as it takes, one after the other.
   *
   * <p>A task that is refused does not hold back the others. Where a whole request fails although
   * it was retried, its tasks have that error; if the server could not be reached in time, so have
   * those that come after it, which are not sent then.
   *
   * @return an admission or an error for each task, in order
   */
  public List<EnqueueResult> enqueueMany(Iterable<NewTask> tasks) {
    List<EnqueueResult> results = new ArrayList<>();
    Batches batches = new Batches();
    RdqException unreachable = null;
    for (NewTask task : tasks) {
      io.rdq.v1.Task prepared = prepared(task);
      if (!batches.fits(prepared)) {
        unreachable = send(batches.take(), unreachable, results);
      }
      batches.add(prepared);
    }
    if (!batches.isEmpty()) {
      send(batches.take(), unreachable, results);
    }
    return results;
  }

  /** Sends one request, adds its results, and returns the error if the server is not there. */
  private RdqException send(
      List<io.rdq.v1.Task> tasks, RdqException unreachable, List<EnqueueResult> results) {
    if (unreachable != null) {
      tasks.forEach(task -> results.add(EnqueueResult.refused(task.getId(), unreachable)));
      return unreachable;
    }
    EnqueueResult[] answers = new EnqueueResult[tasks.size()];
    Calls.Tries tries = calls.tries();
    List<Integer> open = IntStream.range(0, tasks.size()).boxed().toList();
    RdqException failed = null;
    while (true) {
      RdqException error = null;
      try {
        EnqueueBatchResponse response =
            calls.once(TaskServiceGrpc.getEnqueueBatchMethod(), request(tasks, open), tries);
        List<Integer> refused = new ArrayList<>();
        for (int i = 0; i < open.size(); i++) {
          int index = open.get(i);
          answers[index] = result(tasks.get(index), response, i);
          RdqException itsError = answers[index].error().orElse(null);
          if (itsError != null && itsError.isRetryable()) {
            refused.add(index);
            error = itsError;
          }
        }
        open = refused;
      } catch (RdqException whole) {
        error = whole;
        failed = whole;
        for (int index : open) {
          answers[index] = EnqueueResult.refused(tasks.get(index).getId(), whole);
        }
      }
      if (error == null) {
        failed = null;
        break;
      }
      try {
        tries.next(error);
      } catch (RdqException last) {
        if (failed == error) {
          failed = last;
        }
        break;
      }
    }
    results.addAll(Arrays.asList(answers));
    boolean isOver =
        failed != null && (failed.isRetryable() || Thread.currentThread().isInterrupted());
    return isOver ? failed : null;
  }

  private static EnqueueBatchRequest request(List<io.rdq.v1.Task> tasks, List<Integer> open) {
    EnqueueBatchRequest.Builder request = EnqueueBatchRequest.newBuilder();
    open.forEach(index -> request.addTasks(tasks.get(index)));
    return request.build();
  }

  private static EnqueueResult result(io.rdq.v1.Task task, EnqueueBatchResponse response, int i) {
    io.rdq.v1.EnqueueResult result = response.getResults(i);
    return result.getOutcomeCase() == OutcomeCase.ENQUEUED
        ? EnqueueResult.admitted(Admission.of(result.getEnqueued()))
        : EnqueueResult.refused(task.getId(), Errors.of(result.getError()));
  }

  /** The task as it is sent: with an id, and with the caller's trace. */
  private static io.rdq.v1.Task prepared(NewTask task) {
    io.rdq.v1.Task.Builder builder = task.toProto().toBuilder();
    if (builder.getId().isEmpty()) {
      builder.setId(Ids.ulid());
    }
    Tracing.inject(builder);
    return builder.build();
  }
}
