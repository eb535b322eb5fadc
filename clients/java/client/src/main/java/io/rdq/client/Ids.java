package io.rdq.client;

import java.security.SecureRandom;

/** Ids of tasks whose caller chose none: ULIDs, which sort by the time they were made. */
final class Ids {
  private static final char[] CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ".toCharArray();
  private static final SecureRandom RANDOM = new SecureRandom();

  private Ids() {}

  /** A new ULID: 48 bits of the time in milliseconds, then 80 random ones. */
  static String ulid() {
    byte[] random = new byte[10];
    RANDOM.nextBytes(random);
    return ulid(System.currentTimeMillis(), random);
  }

  static String ulid(long millis, byte[] random) {
    char[] text = new char[26];
    for (int i = 9; i >= 0; i--) {
      text[i] = CROCKFORD[(int) (millis & 31)];
      millis >>>= 5;
    }
    // 80 bits are 16 characters of 5.
    long buffered = 0;
    int bits = 0;
    int next = 10;
    for (byte value : random) {
      buffered = buffered << 8 | value & 0xff;
      bits += 8;
      while (bits >= 5) {
        bits -= 5;
        text[next++] = CROCKFORD[(int) (buffered >>> bits) & 31];
      }
    }
    return new String(text);
  }

  /** A worker's id: where it runs, and letters that tell it from others there. */
  static String workerId() {
    return host() + "-" + ProcessHandle.current().pid() + "-" + ulid().substring(18).toLowerCase();
  }

  private static String host() {
    String host;
    try {
      host = java.net.InetAddress.getLocalHost().getHostName();
    } catch (java.net.UnknownHostException unknown) {
      host = "unknown";
    }
    return host.length() <= 200 ? host : host.substring(0, 200);
  }
}
