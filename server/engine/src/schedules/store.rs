//! The storage calls that schedules need, each run to its end.

use super::changes;
use crate::{EngineError, core::Core};
use bytes::Bytes;
use rdq_spi::{
    Applied, CompareAndSet, ListRecords, Operation, Position, Record, RecordKey, RecordName,
    RecordPage, RecordSpace, Rejected, ScheduleName, StorageError, Timestamp,
};

/// The faculty, or why there is none.
pub(crate) fn required<T: ?Sized>(faculty: Option<&T>) -> Result<&T, StorageError> {
    faculty.ok_or(StorageError::Unsupported { operation: "schedules" })
}

pub(super) fn key_of(name: &ScheduleName) -> RecordKey {
    RecordKey { space: RecordSpace::Schedules, name: RecordName::stored(name.as_str()) }
}

impl Core {
    /// Whether the storage has what schedules need.
    pub(crate) fn has_schedules(&self) -> bool {
        let storage = &self.storage;
        storage.records().is_some() && storage.locks().is_some() && storage.transactions().is_some()
    }

    pub(crate) async fn storage_now(&self) -> Result<Timestamp, EngineError> {
        self.call("now", |storage| async move { storage.now().await }).await
    }

    pub(super) async fn schedule_record(
        &self,
        name: &ScheduleName,
    ) -> Result<Option<Record>, EngineError> {
        let key = key_of(name);
        self.call("get_record", |storage| async move {
            required(storage.records())?.get_record(key).await
        })
        .await
    }

    pub(super) async fn schedule_records(
        &self,
        position: Option<Position>,
        limit: u32,
        bytes_max: usize,
    ) -> Result<RecordPage, EngineError> {
        let (space, prefix) = (RecordSpace::Schedules, String::new());
        let params = ListRecords { space, prefix, position, limit, bytes_max };
        self.call("list_records", |storage| async move {
            required(storage.records())?.list_records(params).await
        })
        .await
    }

    /// Changes a schedule's record, and says whether it was as expected.
    pub(super) async fn set_schedule(
        &self,
        name: &ScheduleName,
        value: Option<Bytes>,
        expected_revision: i64,
    ) -> Result<bool, EngineError> {
        let change = CompareAndSet { key: key_of(name), value, expected_revision };
        let set = self.call("compare_and_set", |storage| async move {
            let answers = required(storage.records())?.compare_and_set(vec![change]).await?;
            let missing = || StorageError::Internal {
                operation: "compare_and_set",
                source: "no answer to a change".into(),
            };
            match answers.into_iter().next().ok_or_else(missing)? {
                Ok(_) => Ok(true),
                Err(StorageError::CasConflict { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        });
        set.await
    }

    pub(super) async fn commit(
        &self,
        operations: Vec<Operation>,
    ) -> Result<Result<Vec<Applied>, Rejected>, EngineError> {
        let storage = self.storage.clone();
        let commit = async move { required(storage.transactions())?.commit(operations).await };
        self.run("commit", commit).await
    }

    /// Tells the runner, wherever it is. One that does not hear of it looks by itself soon.
    pub(super) async fn tell_of_schedules(&self) {
        let notify = self.call("notify", |storage| async move {
            match storage.signals() {
                Some(signals) => signals.notify(vec![changes()]).await,
                None => Ok(()),
            }
        });
        if let Err(error) = notify.await {
            tracing::debug!(%error, "the runner of schedules was not told of a change");
        }
    }
}
