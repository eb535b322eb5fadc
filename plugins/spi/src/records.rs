//! Records: values under keys, changed by compare-and-set on a revision.

use crate::{Position, RecordName, Result, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;

/// Whose records: keys of different spaces never meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordSpace {
    /// Those of `RecordService`.
    Caller,
    /// The engine's: one a schedule.
    Schedules,
}

impl RecordSpace {
    /// Every space.
    pub const ALL: [Self; 2] = [Self::Caller, Self::Schedules];

    /// How a backend names the space.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Schedules => "schedules",
        }
    }
}

/// Names a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordKey {
    /// Whose.
    pub space: RecordSpace,
    /// Its key there.
    pub name: RecordName,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub name: RecordName,
    /// Opaque.
    pub value: Bytes,
    /// Grows by one with each value that the key gets, over deletions too; 1 is the first.
    pub revision: i64,
    /// When the value was set, by the storage's clock.
    pub updated_at: Timestamp,
}

/// One change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompareAndSet {
    /// Which.
    pub key: RecordKey,
    /// The new value; `None` removes the record.
    pub value: Option<Bytes>,
    /// The revision that the record must have; 0: it must not exist. A removal needs one above 0.
    pub expected_revision: i64,
}

/// Arguments of [`Records::list_records`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRecords {
    /// Whose.
    pub space: RecordSpace,
    /// Only keys that start so; all if empty.
    pub prefix: String,
    /// Where the page begins; the first key if unset.
    pub position: Option<Position>,
    /// At least 1 (Bounded).
    pub limit: u32,
    /// Stop before keys and values outgrow this (Bounded); a first record always fits.
    pub bytes_max: usize,
}

/// A page of records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordPage {
    /// The records.
    pub records: Vec<Record>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Position>,
}

/// Records: the faculty behind `RecordService` and schedules.
///
/// # Contract
///
/// - **CompareAndSet.** Of any number of concurrent changes of one record that expect the same
///   revision, one succeeds. The others are [`crate::StorageError::CasConflict`], and change nothing.
/// - **RevisionsGrow.** A key's revisions grow by one with each value, for ever: also when the record
///   was removed and made again.
/// - **StablePagination.** Lists go by key, in the order of its bytes, without skips or duplicates;
///   a record that was made after the first page never enters.
#[async_trait]
pub trait Records: Send + Sync {
    /// Reads a record.
    async fn get_record(&self, key: RecordKey) -> Result<Option<Record>>;

    /// Changes records, each on its own, and answers each one's revision: the new one, or of a
    /// removal the last one.
    async fn compare_and_set(&self, changes: Vec<CompareAndSet>) -> Result<Vec<Result<i64>>>;

    /// Lists records.
    async fn list_records(&self, params: ListRecords) -> Result<RecordPage>;
}
