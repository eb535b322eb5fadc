//! The operations of a transaction, one after the other.

use crate::{admission::detach_task, state::State};
use rdq_spi::{Applied, Operation, Rejected, Result, StorageError, Timestamp, Topic};

impl State {
    /// Applies the operations of one call in their order, up to the first that fails.
    pub(crate) fn apply_all(
        &mut self,
        operations: Vec<Operation>,
        now: Timestamp,
    ) -> Result<Vec<Applied>, Rejected> {
        let observed = Operation::observation(&operations)?.cloned();
        let applied = operations.into_iter().enumerate().map(|(index, operation)| {
            let applied = self.apply(operation, now);
            applied.map_err(|error| Rejected { index: Some(index), error })
        });
        let applied = applied.collect::<Result<Vec<_>, _>>()?;
        if let (Some(mutation), Some((_, answers))) = (observed, applied.split_first()) {
            self.record_mutation(mutation, answers, now);
        }
        Ok(applied)
    }

    /// The same of several calls, as if they were one.
    pub(crate) fn apply_calls(
        &mut self,
        calls: Vec<Vec<Operation>>,
        now: Timestamp,
    ) -> Result<Vec<Applied>, Rejected> {
        let mut applied = Vec::new();
        for operations in calls {
            let answers = self.apply_all(operations, now);
            applied.extend(answers.map_err(|rejected| rejected.after(applied.len()))?);
        }
        Ok(applied)
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
            // It is recorded once the others have their answers.
            Operation::Observe(mutation) => match self.mutations.get(&mutation.scope) {
                Some(mutation) => {
                    let mutation = Box::new(mutation.clone());
                    return Err(StorageError::MutationObserved { mutation });
                }
                None => Applied::Observed,
            },
        })
    }
}
