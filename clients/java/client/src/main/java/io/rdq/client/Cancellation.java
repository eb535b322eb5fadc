package io.rdq.client;

/**
 * What became of a call to cancel a task.
 *
 * @param status where the task stands: cancelled, or what it had finished as
 * @param cancelled true if this call cancelled it; a call that was repeated after a lost answer
 *     says false although it was the one
 */
public record Cancellation(TaskStatus status, boolean cancelled) {}
