//! Transactions: many operations that all happen or none.

use crate::{
    Admission, Cancelled, ChannelName, CompareAndSet, ConsumerName, MutationStatus, NewEvent,
    NewMutation, NewTask, ReadParams, Resolution, Resolved, Result, SaveOffset, StorageError,
    StreamEvent, StreamName, Task, TaskId,
};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// One operation of a transaction. Each means what the call of its own does.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// [`crate::Storage::enqueue`]
    Enqueue(NewTask),
    /// [`crate::Streams::publish`]
    Publish(NewEvent),
    /// [`crate::Signals::notify`], heard of after the commit.
    Notify(ChannelName),
    /// [`crate::Streams::save_offsets`]
    SaveOffset(SaveOffset),
    /// [`crate::Records::compare_and_set`]
    CompareAndSet(CompareAndSet),
    /// [`crate::Storage::cancel`]
    Cancel(TaskId),
    /// [`crate::Storage::resolve`]
    Resolve(Resolution),
    /// Records a mutation if its scope has no record; else the whole call is rejected (see
    /// [`crate::Ledger`]). The first of the operations that are applied in one call, or none.
    Observe(NewMutation),
}

impl Operation {
    /// The stream that it publishes to.
    pub fn published(&self) -> Option<&StreamName> {
        match self {
            Self::Publish(event) => Some(&event.stream),
            _ => None,
        }
    }

    /// The mutation that these operations, which are applied in one call, observe: the first of them,
    /// which stands alone if it is a rejected one. Else they are refused. Every storage that has a
    /// ledger asks this before it applies any.
    pub fn observation(operations: &[Self]) -> Result<Option<&NewMutation>, Rejected> {
        let refuse = |index, message: &str| {
            let (operation, message) = ("observe", message.to_owned());
            let error = StorageError::Refused { operation, message };
            Err(Rejected { index: Some(index), error })
        };
        let is_observation = |operation: &Self| matches!(operation, Self::Observe(_));
        if let Some(place) = operations.iter().skip(1).position(is_observation) {
            return refuse(place + 1, "a mutation is observed before anything else is done");
        }
        match operations {
            [Self::Observe(mutation), _, ..] if mutation.status == MutationStatus::Rejected => {
                refuse(0, "nothing is done with a rejected mutation")
            }
            [Self::Observe(mutation), ..] => Ok(Some(mutation)),
            _ => Ok(None),
        }
    }
}

/// The answer to one operation: what the call of its own would have answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Applied {
    /// To [`Operation::Enqueue`].
    Enqueued(Admission),
    /// To [`Operation::Publish`]: the offset.
    Published(i64),
    /// To [`Operation::Notify`].
    Notified,
    /// To [`Operation::SaveOffset`]: what is saved.
    OffsetSaved(i64),
    /// To [`Operation::CompareAndSet`]: the revision.
    Recorded(i64),
    /// To [`Operation::Cancel`].
    Cancelled(Cancelled),
    /// To [`Operation::Resolve`].
    Resolved(Resolved),
    /// To [`Operation::Observe`]: it was first.
    Observed,
}

impl Applied {
    /// Whether both say the same but for instants, which differ whenever an operation is run again.
    pub fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Resolved(one), Self::Resolved(two)) => {
                (one.status, one.replayed) == (two.status, two.replayed)
            }
            _ => self == other,
        }
    }
}

/// Why operations were not applied. Nothing changed, unless the error itself says otherwise.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// Which operation failed, by its place in the call; `None` if no single one did.
    pub index: Option<usize>,
    /// Why.
    #[source]
    pub error: StorageError,
}

impl Rejected {
    /// The same, where so many operations come before those of the call.
    #[must_use]
    pub fn after(self, before: usize) -> Self {
        Self { index: self.index.map(|index| index + before), ..self }
    }
}

impl From<StorageError> for Rejected {
    fn from(error: StorageError) -> Self {
        Self { index: None, error }
    }
}

/// Transactions: the faculty behind `TransactionService`.
///
/// # Contract
///
/// - **CommitAtomicity.** All operations of a commit apply, at one instant, or none does: whichever
///   of them fails, whoever dies. Nobody sees a part. The order of the operations is that of their
///   effects, and a later one sees what an earlier one did.
/// - **StreamOrder** holds across transactions: an event whose transaction commits late does not
///   appear below one that was seen.
#[async_trait]
pub trait Transactions: Send + Sync {
    /// Applies all of the operations or none, and answers each.
    async fn commit(&self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected>;

    /// Whether [`Transactions::begin`] works.
    fn interactive(&self) -> bool {
        false
    }

    /// Begins an interactive transaction.
    async fn begin(&self) -> Result<Box<dyn Transaction>> {
        Err(StorageError::Unsupported { operation: "begin" })
    }
}

/// An interactive transaction. Dropped before its commit, it is rolled back.
///
/// # Contract
///
/// - **ReadYourWrites.** Its reads see what it wrote; nobody else does before the commit.
/// - An operation that fails changes nothing and leaves the transaction as it was, unless the error
///   is one of the storage itself (unavailable, contention): then only a rollback is left.
/// - Where somebody else's write is in the way, a call waits for up to 5 seconds, then it, or the
///   commit, is [`StorageError::Contention`] and nothing of the transaction is applied.
#[async_trait]
pub trait Transaction: Debug + Send {
    /// Applies all of these operations or none, within the transaction. A mutation that is observed
    /// keeps the answers of this call's other operations.
    async fn apply(&mut self, operations: Vec<Operation>) -> Result<Vec<Applied>, Rejected>;

    /// [`crate::Storage::get`], within the transaction.
    async fn get(&mut self, task: TaskId) -> Result<Task>;

    /// [`crate::Streams::read`], within the transaction.
    async fn read(&mut self, params: ReadParams) -> Result<Vec<StreamEvent>>;

    /// [`crate::Streams::offset`], within the transaction.
    async fn offset(&mut self, stream: StreamName, consumer: ConsumerName) -> Result<i64>;

    /// Makes everything happen.
    async fn commit(self: Box<Self>) -> Result<()>;

    /// Makes nothing happen.
    async fn rollback(self: Box<Self>) -> Result<()>;
}
