//! What a task weighs in an answer, at most: a storage counts its bytes, the rest is counted here.
//! Pure.

use rdq_spi::{Attempt, Task, shed};

/// Numbers, instants, tags and lengths around the server-owned fields of a task, and its token.
const TASK_BYTES: usize = 320;
/// The same of an attempt.
const ATTEMPT_BYTES: usize = 64;

/// The most that the task takes up in an answer.
pub(crate) fn weight(task: &Task) -> usize {
    let names =
        task.id.as_str().len() + 2 * task.queue.as_str().len() + task.handler_ref.as_str().len();
    fixed(task) + names + task.attempts.iter().map(Attempt::len_bytes).sum::<usize>()
}

fn fixed(task: &Task) -> usize {
    TASK_BYTES
        + task.envelope.len()
        + task.progress.len()
        + task.result.len()
        + ATTEMPT_BYTES * task.attempts.len()
}

/// What a storage may put into an answer of `count` tasks by its own count.
pub(crate) fn storage_bytes(bytes_max: usize, count: u32) -> usize {
    let overhead = (TASK_BYTES + 192).saturating_mul(usize::try_from(count).unwrap_or(usize::MAX));
    bytes_max.saturating_sub(overhead).max(bytes_max / 2)
}

/// How many of the tasks one answer carries, at least one.
pub(crate) fn fitting<'a>(tasks: impl Iterator<Item = &'a Task>, bytes_max: usize) -> usize {
    let mut bytes = 0;
    tasks
        .take_while(|task| {
            let first = bytes == 0;
            bytes += weight(task);
            first || bytes <= bytes_max
        })
        .count()
}

/// Cuts the oldest text of a single task until it fits.
pub(crate) fn fit(task: &mut Task, bytes_max: usize) {
    let history = weight(task).saturating_sub(bytes_max);
    if history > 0 {
        let text: usize = task.attempts.iter().map(Attempt::len_bytes).sum();
        shed(&mut task.attempts, text.saturating_sub(history));
    }
}
