package io.rdq.client;

import io.rdq.v1.EnqueueBatchRequest;
import io.rdq.v1.EnqueueBatchResponse;
import io.rdq.v1.EnqueueResult.OutcomeCase;
import io.rdq.v1.TaskServiceGrpc;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/**
 * One request of {@link Producer#enqueueMany}, repeated for those of its tasks that it can help.
 */
final class Shipment {
  private final Calls calls;
  private final List<io.rdq.v1.Task> tasks;
  private final EnqueueResult[] results;

  /** The tasks, by their place, that another try may admit. */
  private List<Integer> open;

  /** Why the last try had no answer; null if it had one. */
  private RdqException failure;

  Shipment(Calls calls, List<io.rdq.v1.Task> tasks) {
    this.calls = calls;
    this.tasks = tasks;
    results = new EnqueueResult[tasks.size()];
    open = IntStream.range(0, tasks.size()).boxed().toList();
  }

  /** Sends it, as often as that helps and the calls' deadline lasts. */
  void send() {
    Calls.Tries tries = calls.tries();
    RdqException error = sendOnce(tries);
    while (error != null) {
      try {
        tries.next(error);
      } catch (RdqException last) {
        if (failure != null) {
          failure = last;
          refuseOpen();
        }
        return;
      }
      error = sendOnce(tries);
    }
  }

  /** One try; returns an error that another may help against, or that failed it as a whole. */
  private RdqException sendOnce(Calls.Tries tries) {
    EnqueueBatchRequest.Builder request = EnqueueBatchRequest.newBuilder();
    open.forEach(place -> request.addTasks(tasks.get(place)));
    EnqueueBatchResponse response;
    try {
      response = calls.once(TaskServiceGrpc.getEnqueueBatchMethod(), request.build(), tries);
    } catch (RdqException error) {
      failure = error;
      refuseOpen();
      return error;
    }
    failure = null;
    RdqException worthATry = null;
    List<Integer> stillOpen = new ArrayList<>();
    for (int i = 0; i < open.size(); i++) {
      int place = open.get(i);
      io.rdq.v1.EnqueueResult result =
          i < response.getResultsCount()
              ? response.getResults(i)
              : io.rdq.v1.EnqueueResult.getDefaultInstance();
      if (result.getOutcomeCase() == OutcomeCase.ENQUEUED) {
        results[place] = EnqueueResult.admitted(Admission.of(result.getEnqueued()));
        continue;
      }
      RdqException error =
          result.getOutcomeCase() == OutcomeCase.ERROR
              ? Errors.of(result.getError())
              : Errors.missingResult();
      results[place] = EnqueueResult.refused(tasks.get(place).getId(), error);
      if (error.isRetryable()) {
        stillOpen.add(place);
        worthATry = error;
      }
    }
    open = stillOpen;
    return worthATry;
  }

  private void refuseOpen() {
    for (int place : open) {
      results[place] = EnqueueResult.refused(tasks.get(place).getId(), failure);
    }
  }

  /** What became of each task, in order. */
  List<EnqueueResult> results() {
    return Arrays.asList(results);
  }

  /** Why it is of no use to send more now; null if it may be. */
  RdqException whyNoMore() {
    boolean isUnreachable = failure != null && failure.isRetryable();
    boolean isInterrupted = failure != null && Thread.currentThread().isInterrupted();
    return isUnreachable || isInterrupted ? failure : null;
  }
}
