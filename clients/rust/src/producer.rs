//! Enqueueing: one task, or many cut into requests that any server takes.

use crate::{
    Client, Enqueued, Error, NewTask,
    client::{Rpc, Try},
    task::EncodedTask,
};
use rdq_proto::v1::{EnqueueBatchRequest, EnqueueRequest, EnqueueResult, enqueue_result::Outcome};
use std::ops::Range;
use tonic::Code;

/// What one request carries at most. A task that is larger alone goes alone.
const TASKS_MAX: usize = 1_000;
const BYTES_MAX: usize = 3 << 20;
/// The key and the length before each task of a request.
const FRAME_BYTES: usize = 8;

impl Client {
    /// Enqueues one task. It may be repeated, and is so by the client itself: the task's id is
    /// chosen before the first try, and admits it once.
    pub async fn enqueue(&self, task: NewTask) -> Result<Enqueued, Error> {
        let task = task.encode();
        let response = self
            .call(|mut rpc, ask| {
                let message = EnqueueRequest { task: task.bytes.clone() };
                async move { rpc.tasks.enqueue(ask.request(message)).await }
            })
            .await?;
        Ok(task.enqueued(response))
    }

    /// Enqueues many tasks, and answers for each, in their order. One that is refused does not hold
    /// back the others.
    ///
    /// The tasks go out in order, in requests of at most 1,000 tasks and 3 MiB, each within the
    /// client's deadline. When one of these ran out without an answer, the tasks after it are not
    /// sent, and have its error too.
    pub async fn enqueue_many(
        &self,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Vec<Result<Enqueued, Error>> {
        let tasks: Vec<_> = tasks.into_iter().map(NewTask::encode).collect();
        let mut answers = Vec::with_capacity(tasks.len());
        for range in cut(tasks.iter().map(|task| task.bytes.len())) {
            match self.enqueue_batch(&tasks[range]).await {
                Ok(batch) => answers.extend(batch),
                Err(error) => {
                    let left = tasks.len() - answers.len();
                    answers.extend(std::iter::repeat_n(Err(error), left));
                    break;
                }
            }
        }
        answers
    }

    /// Sends one request, and again those of its tasks for which that helps.
    async fn enqueue_batch(
        &self,
        tasks: &[EncodedTask],
    ) -> Result<Vec<Result<Enqueued, Error>>, Error> {
        let mut answers: Vec<Option<Result<Enqueued, Error>>> = vec![None; tasks.len()];
        let mut left: Vec<usize> = (0..tasks.len()).collect();
        let mut calling = self.calling();
        loop {
            let ask = calling.next_try();
            let error = match send(self.rpc(), ask, left.iter().map(|index| &tasks[*index])).await {
                Ok(results) => {
                    for (index, result) in left.iter().zip(results) {
                        answers[*index] = Some(answer(&tasks[*index], result));
                    }
                    let again = |answer: &Option<_>| matches!(answer, Some(Err(e)) if Error::is_retryable(e));
                    left.retain(|index| again(&answers[*index]));
                    let Some(first) = left.first() else { break };
                    let Some(Err(error)) = &answers[*first] else { break };
                    error.clone()
                }
                // The whole of it is refused for good: so is each of its tasks.
                Err(error) if !error.is_retryable() && error.code() != Code::DeadlineExceeded => {
                    for index in &left {
                        answers[*index] = Some(Err(error.clone()));
                    }
                    break;
                }
                Err(error) => error,
            };
            if let Err(error) = calling.wait_after(error).await {
                if left.len() == tasks.len() {
                    return Err(error);
                }
                for index in &left {
                    answers[*index].get_or_insert_with(|| Err(error.clone()));
                }
                break;
            }
        }
        let missing = || Err(Error::broken("has no result for a task"));
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect())
    }
}

async fn send(
    mut rpc: Rpc,
    ask: Try,
    tasks: impl Iterator<Item = &EncodedTask>,
) -> Result<Vec<EnqueueResult>, Error> {
    let message = EnqueueBatchRequest { tasks: tasks.map(|task| task.bytes.clone()).collect() };
    let response = ask.answer(rpc.tasks.enqueue_batch(ask.request(message))).await?;
    Ok(response.into_inner().results)
}

fn answer(task: &EncodedTask, result: EnqueueResult) -> Result<Enqueued, Error> {
    match result.outcome {
        Some(Outcome::Enqueued(response)) => Ok(task.enqueued(response)),
        Some(Outcome::Error(error)) => Err(error.into()),
        None => Err(Error::broken("has a result without an outcome")),
    }
}

/// The ranges of tasks, of these sizes, that go into one request each.
fn cut(sizes: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (index, size) in sizes.enumerate() {
        let size = size + FRAME_BYTES;
        match ranges.last_mut() {
            Some(range) if range.len() < TASKS_MAX && bytes + size <= BYTES_MAX => {
                range.end = index + 1;
                bytes += size;
            }
            _ => {
                ranges.push(index..index + 1);
                bytes = size;
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_by_count_and_by_bytes_and_hold_every_task_in_order() {
        let small = cut(std::iter::repeat_n(10, 2_500));
        assert_eq!(small, [0..1000, 1000..2000, 2000..2500]);
        let mib = 1 << 20;
        let large = cut([mib, mib, mib, mib].into_iter());
        assert_eq!(large, [0..2, 2..4], "three and their frames are over 3 MiB");
        let huge = cut([1, 5 * mib, 1].into_iter());
        assert_eq!(huge, [0..1, 1..2, 2..3], "what is too large alone goes alone");
        assert_eq!(cut(std::iter::empty()), []);
    }
}
