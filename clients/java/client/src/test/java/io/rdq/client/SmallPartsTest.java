package io.rdq.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class SmallPartsTest {
  @Test
  void aUlidHasItsTimeAndItsChance() {
    byte[] most = new byte[10];
    java.util.Arrays.fill(most, (byte) 0xff);
    assertEquals("7ZZZZZZZZZZZZZZZZZZZZZZZZZ", Ids.ulid((1L << 48) - 1, most));
    assertEquals("00000000000000000000000000", Ids.ulid(0, new byte[10]));
    // The example of the ULID specification.
    assertEquals("01ARYZ6S41", Ids.ulid(1469918176385L, new byte[10]).substring(0, 10));
    assertNotEquals(Ids.ulid(), Ids.ulid());
  }

  @Test
  void negativeDurationsHaveOneSign() {
    com.google.protobuf.Duration proto = Times.proto(Duration.ofMillis(-1500));
    assertEquals(-1, proto.getSeconds());
    assertEquals(-500_000_000, proto.getNanos());
    assertEquals(Duration.ofMillis(-1500), Times.duration(proto));
    assertEquals(Long.MAX_VALUE, Times.nanos(Duration.ofDays(1_000_000)));
  }

  @Test
  void aFailureIsNamedByWhatAWrapperWraps() {
    IllegalStateException cause = new IllegalStateException("why");
    Failure bare = Failure.of(new PermanentException(cause));
    assertEquals("java.lang.IllegalStateException", bare.type());
    assertEquals("why", bare.message());
    Failure said = Failure.of(new RetryableException("what", cause));
    assertEquals("java.lang.IllegalStateException", said.type());
    assertEquals("what", said.message());
    assertEquals(
        "io.rdq.client.PermanentException", Failure.of(new PermanentException("no")).type());
    Failure ordinary = Failure.of(new RuntimeException("outer", cause));
    assertEquals("java.lang.RuntimeException", ordinary.type());
    assertTrue(ordinary.stack().contains("Caused by: java.lang.IllegalStateException: why"));
    assertEquals("", Failure.of(new RuntimeException()).message());
  }

  @Test
  void textThatIsMuchTooLongIsCutBetweenCharacters() {
    String emoji = "🚀".repeat(10_000);
    String cut = new Failure("t", "x" + emoji, "").toProto().getMessage();
    assertEquals(8_191, cut.length());
    assertTrue(Character.isLowSurrogate(cut.charAt(cut.length() - 1)));
  }

  @Test
  void whatCannotBeIsRefusedBeforeAWorkerStarts() {
    RdqClient client = RdqClient.connect("127.0.0.1:1");
    try (client) {
      assertThrows(IllegalArgumentException.class, client::worker);
      Worker.Builder worker = client.worker("q");
      assertThrows(IllegalStateException.class, worker::start);
      assertThrows(IllegalArgumentException.class, () -> worker.concurrency(0));
      worker.handler("h", claim -> null);
      assertThrows(IllegalArgumentException.class, () -> worker.handler("h", claim -> null));
    }
  }
}
