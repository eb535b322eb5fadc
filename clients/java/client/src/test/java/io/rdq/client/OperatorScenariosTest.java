package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Status;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** What an operator sees and does. */
class OperatorScenariosTest extends Scenario {
  /** Tasks that a worker made dead letters, some by one handler and some by another. */
  private List<String> deadLetters(int count) {
    List<NewTask> tasks = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      tasks.add(NewTask.builder(QUEUE, i % 2 == 0 ? "even" : "odd").id("dead-" + i).build());
    }
    producer.enqueueMany(tasks).forEach(EnqueueResult::orThrow);
    Worker worker =
        start(
            client
                .worker(QUEUE)
                .concurrency(50)
                .handler("even", claim -> Outcome.permanent("test.Even", "no"))
                .handler("odd", claim -> Outcome.permanent("test.Odd", "no")));
    awaitThat("all are dead", () -> operator.stats(QUEUE).get(0).dlqDepth() == count);
    worker.stop();
    return tasks.stream().map(task -> task.toProto().getId()).toList();
  }

  @Test
  void pageIteration() {
    Set<String> expected = new HashSet<>(deadLetters(130));

    List<String> listed = operator.list(TaskQuery.of(QUEUE)).stream().map(Task::id).toList();
    assertEquals(130, listed.size());
    assertEquals(expected, new HashSet<>(listed));
    Pages<Task> dead = operator.dlqList(DlqQuery.of(QUEUE).pageSize(33).withAttempts());
    List<String> walked = new ArrayList<>();
    for (Task task : dead) {
      walked.add(task.id());
      assertEquals(1, task.attempts().size());
    }
    assertEquals(130, walked.size());
    assertEquals(expected, new HashSet<>(walked));

    Page<Task> first = dead.page("");
    assertEquals(33, first.items().size());
    assertFalse(first.isLast());
    assertEquals(walked.subList(33, 66), ids(dead.page(first.nextPageToken())));
    String token = first.nextPageToken();
    int middle = token.length() / 2;
    char other = token.charAt(middle) == 'A' ? 'B' : 'A';
    String tampered = token.substring(0, middle) + other + token.substring(middle + 1);
    assertThrows(InvalidCursorException.class, () -> dead.page(tampered));
    assertTrue(operator.list(TaskQuery.of("empty")).page("").isLast());
  }

  private static List<String> ids(Page<Task> page) {
    return page.items().stream().map(Task::id).toList();
  }

  @Test
  void operatorCalls() {
    QueueConfig config =
        QueueConfig.builder()
            .maxAttempts(3)
            .initialBackoff(Duration.ofMillis(250))
            .multiplier(1.5)
            .maxBackoff(Duration.ofMinutes(2))
            .jitter(0)
            .lease(Duration.ofSeconds(20))
            .executionTimeout(Duration.ofMinutes(3))
            .strictLeases(true)
            .maxPayloadBytes(1000)
            .retentionSucceeded(Duration.ofHours(1))
            .retentionCancelled(Duration.ofHours(2))
            .retentionDead(Duration.ofHours(3))
            .versionMismatch(VersionMismatch.DEAD_LETTER)
            .retryable("http.5*")
            .permanent("http.4*", "test.?")
            .build();
    Queue stored = operator.putQueue("configured", config);
    assertEquals(config.toProto(), stored.config().orElseThrow().toProto());
    Queue read = operator.getQueue("configured");
    assertEquals(
        stored, new Queue(read.name(), stored.config(), stored.effective(), read.updatedAt()));
    QueueConfig effective = read.effective();
    assertEquals(OptionalInt.of(3), effective.maxAttempts());
    assertEquals(Optional.of(Duration.ofMinutes(2)), effective.maxBackoff());
    assertEquals(Optional.of(true), effective.strictLeases());
    assertEquals(Optional.of(VersionMismatch.DEAD_LETTER), effective.versionMismatch());
    assertEquals(List.of("http.4*", "test.?"), effective.permanent());
    assertEquals(Optional.empty(), operator.getQueue("unheard of").config());
    assertEquals(OptionalInt.of(5), operator.getQueue("unheard of").effective().maxAttempts());
    assertTrue(operator.deleteQueue("configured"));
    assertFalse(operator.deleteQueue("configured"));

    List<String> ids = deadLetters(10);
    assertEquals(List.of(QUEUE), operator.listQueues().stream().map(Queue::name).toList());
    assertEquals(Optional.of(true), operator.pauseQueue(QUEUE).effective().paused());
    Worker paused = start(client.worker(QUEUE).handler("even", claim -> null));

    DlqFilter even = DlqFilter.any().errorType("test.Even").handlerRef("even");
    assertEquals(5, operator.dlqList(DlqQuery.of(QUEUE).filter(even)).stream().count());
    DlqFilter future = DlqFilter.any().deadFrom(Instant.now().plus(Duration.ofDays(2)));
    assertEquals(0, operator.dlqList(DlqQuery.of(QUEUE).filter(future)).stream().count());
    RedriveOptions dry = RedriveOptions.defaults().dryRun();
    assertEquals(10, operator.redrive(QUEUE, Selector.all(), dry));
    assertEquals(10, operator.stats(QUEUE).get(0).dlqDepth());
    List<Long> counts = new ArrayList<>();
    assertEquals(
        2,
        operator.redrive(
            QUEUE,
            Selector.ids(ids.get(0), ids.get(1), "of nobody"),
            RedriveOptions.defaults().onCount(counts::add)));
    assertEquals(2, counts.get(counts.size() - 1));
    assertEquals(
        4,
        operator.redrive(
            QUEUE,
            Selector.filter(even),
            RedriveOptions.defaults().spreadOver(Duration.ofHours(4))));
    assertEquals(4, operator.purge(QUEUE, Selector.all(), PurgeOptions.defaults().dryRun()));
    assertEquals(1, operator.purge(QUEUE, Selector.ids(ids.get(3))));
    assertEquals(3, operator.purge(QUEUE, Selector.all()));
    assertThrows(
        InvalidArgumentException.class,
        () -> operator.purge(QUEUE, Selector.filter(DlqFilter.any())));

    QueueStats stats = operator.stats(QUEUE, "unheard of").get(0);
    assertEquals(QUEUE, stats.queue());
    assertEquals(6, stats.pending());
    assertEquals(0, stats.inFlight(), "the queue is paused");
    assertEquals(0, stats.dlqDepth());
    assertTrue(stats.delayed() >= 3, "delayed: " + stats.delayed());
    assertTrue(stats.oldestPendingAge().isPresent());
    assertEquals(0, operator.stats("unheard of").get(0).pending());
    assertEquals(1, operator.get(ids.get(0)).redriveCount());
    assertEquals(Optional.of(false), operator.resumeQueue(QUEUE).effective().paused());
    await(ids.get(0), TaskStatus.SUCCEEDED);
    paused.stop();
    assertThrows(QueueNotEmptyException.class, () -> operator.deleteQueue(QUEUE));
  }

  @Test
  void aRedriveThatIsNotAnsweredEnds() {
    TcpProxy proxy = open(new TcpProxy(server.port()));
    Duration timeout = Duration.ofMillis(300);
    RdqClient behind = open(RdqClient.builder(proxy.address()).callTimeout(timeout).build());
    proxy.holdDown(true);

    RdqException error =
        assertThrows(
            RdqException.class, () -> behind.operator().redrive(QUEUE, Selector.ids("none")));

    assertEquals(Status.Code.DEADLINE_EXCEEDED, error.code());
    assertTrue(error.outcomeUnknown());
    assertTrue(error.partialCount().isEmpty());
  }
}
