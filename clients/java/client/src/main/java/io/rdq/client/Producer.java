package io.rdq.client;

import io.rdq.v1.EnqueueRequest;
import io.rdq.v1.TaskServiceGrpc;
import java.util.ArrayList;
import java.util.List;

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
    RdqException whyNoMore = null;
    for (NewTask task : tasks) {
      io.rdq.v1.Task prepared = prepared(task);
      if (!batches.fits(prepared)) {
        whyNoMore = send(batches.take(), whyNoMore, results);
      }
      batches.add(prepared);
    }
    if (!batches.isEmpty()) {
      send(batches.take(), whyNoMore, results);
    }
    return results;
  }

  /** Sends one request unless it is of no use, adds its results, and says whether the next is. */
  private RdqException send(
      List<io.rdq.v1.Task> tasks, RdqException whyNoMore, List<EnqueueResult> results) {
    if (whyNoMore != null) {
      tasks.forEach(task -> results.add(EnqueueResult.refused(task.getId(), whyNoMore)));
      return whyNoMore;
    }
    Shipment shipment = new Shipment(calls, tasks);
    shipment.send();
    results.addAll(shipment.results());
    return shipment.whyNoMore();
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
