package io.rdq.client.tools;

import java.util.HashMap;
import java.util.Map;

/** Options of a command line, as {@code --name value}. */
final class Arguments {
  private final Map<String, String> values = new HashMap<>();

  /** Takes options, from the first that is one. */
  Arguments(String[] words, int first) {
    for (int i = first; i < words.length; i += 2) {
      if (!words[i].startsWith("--") || i + 1 == words.length) {
        throw new IllegalArgumentException("expected --name value, not " + words[i]);
      }
      values.put(words[i].substring(2), words[i + 1]);
    }
  }

  String text(String name) {
    String value = values.get(name);
    if (value == null) {
      throw new IllegalArgumentException("missing --" + name);
    }
    return value;
  }

  int number(String name) {
    return Integer.parseInt(text(name));
  }
}
