//! Batches: cut to what one request may carry, sent one after the other, each item answered.

use crate::errors::{Failure, Operation};
use rdq_spi::{Result, TaskId};

/// A request carries at most so many items, by the contract.
const ITEMS_MAX: usize = 1_000;
/// Far below what a server reads, so that every one does.
const BYTES_MAX: usize = 3 << 20;
/// What an item weighs beside its message: a key and a length.
const ITEM_BYTES: usize = 8;

/// One item to send. An item that cannot be put on the wire is answered so, and not sent.
pub(crate) struct Item<M> {
    pub(crate) task: TaskId,
    pub(crate) message: Result<M>,
}

/// Sends all items, in their order, and answers each in the same order. A request that fails is the
/// answer of its items alone: those before it are done.
pub(crate) async fn send_all<M, A, F>(
    operation: Operation,
    items: Vec<Item<M>>,
    bytes: impl Fn(&M) -> usize,
    send: impl Fn(Vec<M>) -> F,
) -> Vec<Result<A>>
where
    F: Future<Output = Result<Vec<Result<A, Failure>>, Failure>>,
{
    let mut answers = Vec::with_capacity(items.len());
    let mut open: Vec<(TaskId, M)> = Vec::new();
    let mut open_bytes = 0;
    for Item { task, message } in items {
        match message {
            Ok(message) => {
                let size = bytes(&message) + ITEM_BYTES;
                if open.len() == ITEMS_MAX || open_bytes + size > BYTES_MAX {
                    flush(operation, &mut open, &send, &mut answers).await;
                    open_bytes = 0;
                }
                open_bytes += size;
                open.push((task, message));
            }
            Err(error) => {
                flush(operation, &mut open, &send, &mut answers).await;
                open_bytes = 0;
                answers.push(Err(error));
            }
        }
    }
    flush(operation, &mut open, &send, &mut answers).await;
    answers
}

async fn flush<M, A, F>(
    operation: Operation,
    open: &mut Vec<(TaskId, M)>,
    send: &impl Fn(Vec<M>) -> F,
    answers: &mut Vec<Result<A>>,
) where
    F: Future<Output = Result<Vec<Result<A, Failure>>, Failure>>,
{
    if open.is_empty() {
        return;
    }
    let (tasks, messages): (Vec<_>, Vec<_>) = open.drain(..).unzip();
    match send(messages).await {
        Ok(results) if results.len() == tasks.len() => {
            answers.extend(tasks.iter().zip(results).map(|(task, result)| {
                result.map_err(|failure| failure.error(operation, Some(task)))
            }));
        }
        Ok(results) => answers.extend(tasks.iter().map(|_| {
            Err(operation.broken(format_args!("has {} of {} items", results.len(), tasks.len())))
        })),
        Err(failure) => {
            answers.extend(tasks.iter().map(|task| Err(failure.error(operation, Some(task)))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdq_spi::StorageError;
    use std::cell::RefCell;

    const ENQUEUE: Operation = Operation::changing("enqueue");

    fn items(sizes: &[usize]) -> Vec<Item<usize>> {
        let task = || TaskId::stored("t");
        sizes.iter().map(|size| Item { task: task(), message: Ok(*size) }).collect()
    }

    async fn sent(items: Vec<Item<usize>>) -> (Vec<usize>, Vec<Result<usize>>) {
        let requests = RefCell::new(Vec::new());
        let answers = send_all(
            ENQUEUE,
            items,
            |size| *size,
            |messages| {
                requests.borrow_mut().push(messages.len());
                async move { Ok(messages.into_iter().map(Ok).collect()) }
            },
        );
        let answers = answers.await;
        (requests.into_inner(), answers)
    }

    #[tokio::test]
    async fn requests_are_bounded_in_items_and_bytes() {
        assert!(sent(items(&[])).await.0.is_empty());
        assert_eq!(sent(items(&vec![1; 2_500])).await.0, [1_000, 1_000, 500]);
        assert_eq!(sent(items(&[2 << 20, 1 << 19, 1 << 20, 5 << 20, 1])).await.0, [2, 1, 1, 1]);
    }

    #[tokio::test]
    async fn each_item_is_answered_in_its_order() {
        let mut batch = items(&[1, 2, 3]);
        batch[1].message = Err(StorageError::Unsupported { operation: "enqueue" });
        let (_, answers) = sent(batch).await;
        let sizes: Vec<_> = answers.into_iter().map(Result::ok).collect();
        assert_eq!(sizes, [Some(1), None, Some(3)]);
    }

    #[tokio::test]
    async fn a_request_that_fails_is_the_answer_of_its_items_alone() {
        let requests = RefCell::new(0);
        let answers: Vec<Result<usize>> = send_all(
            ENQUEUE,
            items(&[2 << 20; 3]),
            |size| *size,
            |messages| {
                *requests.borrow_mut() += 1;
                let fails = *requests.borrow() == 2;
                async move {
                    if fails {
                        return Err(Failure::timed_out());
                    }
                    Ok(messages.into_iter().map(Ok).collect())
                }
            },
        )
        .await;
        assert!(matches!(answers[..], [Ok(_), Err(StorageError::OutcomeUnknown { .. }), Ok(_)]));
    }
}
