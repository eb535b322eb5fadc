//! The operations of a transaction, one after the other.

use crate::{admission::detach_task, state::State};
use rdq_spi::{Applied, Operation, Rejected, Result, Timestamp, Topic};

impl State {
    /// Applies them in their order, up to the first that fails.
    pub(crate) fn apply_all(
        &mut self,
        operations: Vec<Operation>,
        now: Timestamp,
    ) -> Result<Vec<Applied>, Rejected> {
        let applied = operations.into_iter().enumerate().map(|(index, operation)| {
            let applied = self.apply(operation, now);
            applied.map_err(|error| Rejected { index: Some(index), error })
        });
        applied.collect()
    }

    fn apply(&mut self, operation: Operation, now: Timestamp) -> Result<Applied> {
        Ok(match operation {
            Operation::Enqueue(mut task) => {
                detach_task(&mut task);
                Applied::Enqueued(self.enqueue(task, now)?)
            }
            Operation::Publish(event) => Applied::Published(self.publish(event, now)),
            Operation::Notify(channel) => {
                self.wakes.push(Topic::Channel(channel));
                Applied::Notified
            }
            Operation::SaveOffset(save) => Applied::OffsetSaved(self.save_offset(save)),
            Operation::CompareAndSet(set) => Applied::Recorded(self.compare_and_set(set, now)?),
            Operation::Cancel(task) => Applied::Cancelled(self.cancel(&task, now)?),
            Operation::Resolve(resolution) => Applied::Resolved(self.resolve(resolution, now)?),
        })
    }
}
