package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.rdq.v1.EnqueueBatchRequest;
import io.rdq.v1.Task;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class BatchesTest {
  private static List<Integer> sizes(int... payloads) {
    List<Integer> sizes = new ArrayList<>();
    Batches batches = new Batches();
    for (int payload : payloads) {
      Task task = Task.newBuilder().setPayload(ByteString.copyFrom(new byte[payload])).build();
      if (!batches.fits(task)) {
        sizes.add(checked(batches.take()));
      }
      batches.add(task);
    }
    if (!batches.isEmpty()) {
      sizes.add(checked(batches.take()));
    }
    return sizes;
  }

  private static int checked(List<Task> tasks) {
    int bytes = EnqueueBatchRequest.newBuilder().addAllTasks(tasks).build().getSerializedSize();
    assertTrue(bytes <= 3 << 20 || tasks.size() == 1, bytes + " bytes");
    return tasks.size();
  }

  @Test
  void requestsAreCutByCount() {
    assertEquals(List.of(1_000, 1_000, 1), sizes(new int[2_001]));
    assertEquals(List.of(1_000), sizes(new int[1_000]));
    assertEquals(List.of(), sizes());
  }

  @Test
  void requestsAreCutBySize() {
    int mib = 1 << 20;
    assertEquals(List.of(2, 2, 1), sizes(mib, mib, mib, mib, mib));
    // Of three, one byte more or less decides: a task takes 9 bytes beside a payload of 1 MiB.
    assertEquals(List.of(3), sizes(mib, mib, mib - 27));
    assertEquals(List.of(2, 1), sizes(mib, mib, mib - 20));
  }

  @Test
  void aTaskThatIsTooLargeGoesAlone() {
    assertEquals(List.of(1, 1, 1), sizes(1, 4 << 20, 1));
  }
}
