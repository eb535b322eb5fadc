package io.rdq.client;

import com.google.protobuf.CodedOutputStream;
import java.util.ArrayList;
import java.util.List;

/** Cuts tasks into requests that the server takes. */
final class Batches {
  private static final int TASKS_MAX = 1_000;
  private static final int BYTES_MAX = 3 << 20;

  private List<io.rdq.v1.Task> tasks = new ArrayList<>();
  private long bytes;

  /** Whether the task has room in the current request. One that is too large alone has, alone. */
  boolean fits(io.rdq.v1.Task task) {
    return tasks.isEmpty() || tasks.size() < TASKS_MAX && bytes + sizeOf(task) <= BYTES_MAX;
  }

  void add(io.rdq.v1.Task task) {
    tasks.add(task);
    bytes += sizeOf(task);
  }

  boolean isEmpty() {
    return tasks.isEmpty();
  }

  /** The current request's tasks; the next one begins. */
  List<io.rdq.v1.Task> take() {
    List<io.rdq.v1.Task> taken = tasks;
    tasks = new ArrayList<>();
    bytes = 0;
    return taken;
  }

  /** What the task takes in a request: a byte for its field, its length, and itself. */
  private static long sizeOf(io.rdq.v1.Task task) {
    return 1L + CodedOutputStream.computeMessageSizeNoTag(task);
  }
}
