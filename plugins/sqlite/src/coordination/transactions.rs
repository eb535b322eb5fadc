//! Transactions: operations that all apply, or none does.

use super::{listening, records, streams};
use crate::{admission, errors::Sql, holding, storage::cost_of, transaction::Tx};
use rdq_spi::{Applied, Operation, Rejected, Result};

/// About what a transaction spends on it.
pub(super) fn cost(operation: &Operation) -> usize {
    match operation {
        Operation::Enqueue(task) => cost_of(task.envelope.len()),
        Operation::Publish(event) => cost_of(event.payload.len()),
        Operation::CompareAndSet(change) => {
            cost_of(change.value.as_ref().map_or(0, bytes::Bytes::len))
        }
        Operation::Notify(_)
        | Operation::SaveOffset(_)
        | Operation::Cancel(_)
        | Operation::Resolve(_) => 1,
    }
}

/// Applies all of these, or says which one failed.
pub(super) fn apply(
    tx: &mut Tx<'_, '_>,
    operations: &[Operation],
) -> Sql<Result<Vec<Applied>, Rejected>> {
    tx.all_or_nothing(|tx| {
        let mut answers = Vec::with_capacity(operations.len());
        for (index, operation) in operations.iter().enumerate() {
            match apply_one(tx, operation)? {
                Ok(answer) => answers.push(answer),
                Err(error) => return Ok(Err(Rejected { index: Some(index), error })),
            }
        }
        Ok(Ok(answers))
    })
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
    })
}
