package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The least that has to work. */
class HappyPathTest extends Scenario {
  @Test
  void happyPath() {
    start(client.worker(QUEUE).handler("send", claim -> "sent " + text(claim.payload())));

    Admission one = producer.enqueue(NewTask.of(QUEUE, "send", "one"));
    List<NewTask> tasks = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      tasks.add(NewTask.of(QUEUE, "send", "many " + i));
    }
    List<EnqueueResult> many = producer.enqueueMany(tasks);

    assertTrue(one.created());
    assertEquals("sent one", text(await(one.id(), TaskStatus.SUCCEEDED).result()));
    for (int i = 0; i < 20; i++) {
      Task task = await(many.get(i).orThrow().id(), TaskStatus.SUCCEEDED);
      assertEquals("sent many " + i, text(task.result()));
      assertEquals(1, task.attempts().size());
      assertEquals(AttemptOutcome.SUCCESS, task.attempts().get(0).outcome());
    }
  }
}
