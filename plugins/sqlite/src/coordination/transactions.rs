//! Transactions: operations that all apply, or none does.

use super::{ledger, listening, records, streams};
use crate::{admission, errors::Sql, holding, reads::not_found, storage::cost_of, transaction::Tx};
use bytes::Bytes;
use rdq_spi::{
    Applied, Operation, Rejected, Result, StorageError,
    replayed::{Read, Run, Then},
};

/// About what a transaction spends on these.
pub(super) fn cost(operations: &[Operation]) -> usize {
    let bytes = operations.iter().map(|operation| match operation {
        Operation::Enqueue(task) => task.envelope.len(),
        Operation::Publish(event) => event.payload.len(),
        Operation::CompareAndSet(change) => change.value.as_ref().map_or(0, Bytes::len),
        Operation::Observe(mutation) => mutation.response.len(),
        Operation::Notify(_)
        | Operation::SaveOffset(_)
        | Operation::Cancel(_)
        | Operation::Resolve(_) => 0,
    });
    bytes.map(cost_of).sum()
}

/// Applies all of these, or none if one fails.
pub(super) fn commit(
    tx: &mut Tx<'_, '_>,
    operations: &[Operation],
) -> Sql<Result<Vec<Applied>, Rejected>> {
    tx.all_or_nothing(|tx| apply(tx, operations))
}

/// Runs an interactive transaction as far as it has come, and what follows.
pub(super) fn replay(
    tx: &mut Tx<'_, '_>,
    calls: &[Vec<Operation>],
    then: &Then,
) -> Sql<Result<Run, Rejected>> {
    let answer = tx.all_or_nothing(|tx| {
        let run = run(tx, calls, then)?;
        let is_kept = matches!(then, Then::Commit(_)) && run.is_ok();
        Ok(if is_kept { Ok(run) } else { Err(run) })
    })?;
    Ok(match answer {
        Ok(run) | Err(run) => run,
    })
}

fn run(tx: &mut Tx<'_, '_>, calls: &[Vec<Operation>], then: &Then) -> Sql<Result<Run, Rejected>> {
    let mut applied = Vec::new();
    for operations in calls {
        match apply(tx, operations)? {
            Ok(answers) => applied.extend(answers),
            Err(rejected) => return Ok(Err(rejected.after(applied.len()))),
        }
    }
    let read = match then {
        Then::Undo => Read::Nothing,
        Then::Get(task) => match tx.view().get(task)? {
            Some(task) => Read::Task(Box::new(task)),
            None => return Ok(Err(not_found(task.clone()).into())),
        },
        Then::Read(params) => Read::Events(tx.view().read(params)?),
        Then::Offset(stream, consumer) => Read::Offset(tx.view().offset(stream, consumer)?),
        Then::Commit(expected) => {
            if !applied.iter().zip(expected).all(|(now, then)| now.agrees(then)) {
                let operation = "commit";
                return Ok(Err(StorageError::Contention { operation }.into()));
            }
            Read::Nothing
        }
    };
    Ok(Ok(Run { applied, read }))
}

/// Applies the operations of one call in their order, up to the first that fails.
fn apply(tx: &mut Tx<'_, '_>, operations: &[Operation]) -> Sql<Result<Vec<Applied>, Rejected>> {
    let observed = match Operation::observation(operations) {
        Ok(observed) => observed,
        Err(rejected) => return Ok(Err(rejected)),
    };
    let mut answers = Vec::with_capacity(operations.len());
    for (index, operation) in operations.iter().enumerate() {
        match apply_one(tx, operation)? {
            Ok(answer) => answers.push(answer),
            Err(error) => return Ok(Err(Rejected { index: Some(index), error })),
        }
    }
    if let (Some(mutation), Some((_, effects))) = (observed, answers.split_first()) {
        ledger::record(tx, mutation, effects)?;
    }
    Ok(Ok(answers))
}

fn apply_one(tx: &mut Tx<'_, '_>, operation: &Operation) -> Sql<Result<Applied>> {
    Ok(match operation {
        // To be claimed by whoever comes: what may yet be undone is handed to nobody.
        Operation::Enqueue(task) => admission::enqueue(tx, task, None)?.map(Applied::Enqueued),
        Operation::Publish(event) => Ok(Applied::Published(streams::publish(tx, event)?)),
        Operation::Notify(channel) => {
            listening::notify(tx, channel)?;
            Ok(Applied::Notified)
        }
        Operation::SaveOffset(save) => Ok(Applied::OffsetSaved(streams::save_offset(tx, save)?)),
        Operation::CompareAndSet(change) => {
            records::compare_and_set(tx, change)?.map(Applied::Recorded)
        }
        Operation::Cancel(task) => holding::cancel(tx, task)?.map(Applied::Cancelled),
        Operation::Resolve(resolution) => holding::resolve(tx, resolution)?.map(Applied::Resolved),
        // It is recorded once the others have their answers.
        Operation::Observe(mutation) => ledger::observe(tx, mutation)?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test reports")]
mod tests {
    use super::*;
    use crate::{SqliteOptions, SqliteStorage, disk_full::new_task};
    use futures::StreamExt as _;
    use rdq_spi::{
        ChannelName, NewEvent, QueueName, ReadFrom, ReadParams, Signals as _, Storage as _,
        StreamName, Streams as _, TaskId, Topic, Wake,
    };

    fn publish(text: &'static str) -> Operation {
        let stream = StreamName::new("s").unwrap();
        Operation::Publish(NewEvent { stream, key: None, payload: text.into() })
    }

    fn channel(name: &str) -> ChannelName {
        ChannelName::new(name).unwrap()
    }

    #[tokio::test]
    async fn a_refused_one_leaves_those_that_share_its_transaction_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rdq.db");
        let storage = SqliteStorage::open(&path, SqliteOptions::default()).await.unwrap();
        let topics = ["a", "b"].map(|name| Topic::Channel(channel(name)));
        let mut wakes = storage.listen(topics.to_vec()).await.unwrap();
        let elsewhere = QueueName::new("elsewhere").unwrap();
        let mut in_a_new_queue = new_task(1, 9);
        in_a_new_queue.queue = elsewhere.clone();
        let refused = [
            publish("never"),
            Operation::Enqueue(new_task(2, 9)),
            Operation::Enqueue(in_a_new_queue),
            Operation::Notify(channel("a")),
            Operation::Cancel(TaskId::new("missing").unwrap()),
        ];

        let together = storage.writer.call("test", 1, move |tx| {
            let before = commit(tx, &[publish("one"), Operation::Enqueue(new_task(0, 9))])?;
            let refused = commit(tx, &refused)?;
            let after = commit(tx, &[publish("two"), Operation::Notify(channel("b"))])?;
            Ok((before, refused, after))
        });
        let (before, refused, after) = together.await.unwrap();

        assert_eq!(before.unwrap()[0], Applied::Published(1));
        assert_eq!(refused.unwrap_err().index, Some(4));
        assert_eq!(after.unwrap(), [Applied::Published(2), Applied::Notified]);
        let stream = StreamName::new("s").unwrap();
        let params =
            ReadParams { stream, from: ReadFrom::Offset(0), limit: 10, bytes_max: 1 << 20 };
        let events = storage.read(params).await.unwrap();
        let texts: Vec<_> = events.iter().map(|event| &event.payload[..]).collect();
        assert_eq!(texts, [b"one", b"two"]);
        let queue = QueueName::new("q").unwrap();
        assert_eq!(storage.stats(queue.clone()).await.unwrap().ready, 1);
        assert_eq!(storage.queue_names(None, 10).await.unwrap(), [queue]);
        // The first channel's would come first.
        assert_eq!(wakes.next().await, Some(Wake::News(topics[1].clone())));
    }
}
