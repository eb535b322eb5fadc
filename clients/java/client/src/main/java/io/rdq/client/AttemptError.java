package io.rdq.client;

/**
 * Why an attempt failed. A text that is not there is empty.
 *
 * @param type a stable name, such as {@code java.io.IOException}, {@code http.503} or {@code
 *     rdq.Timeout}
 * @param message for people
 * @param detail for programs, of any format
 * @param stack the stack
 */
public record AttemptError(String type, String message, String detail, String stack) {
  static AttemptError of(io.rdq.v1.AttemptError proto) {
    return new AttemptError(
        proto.getType(), proto.getMessage(), proto.getDetail(), proto.getStack());
  }
}
