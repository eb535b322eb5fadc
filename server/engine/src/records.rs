//! Records of callers: read, changed by compare-and-set, listed.

use crate::{
    Engine, EngineError,
    batcher::{Batcher, Kind, about},
    core::{Core, spread},
    faculties::records,
    limits::{ANSWER_BYTES_MAX, COORDINATED_BYTES_MAX, EXTENT_MAX, check_size},
    page_token::Binding,
};
use rdq_spi::{CompareAndSet, ListRecords, Record, RecordKey, RecordName, RecordSpace};
use std::sync::Arc;

/// Numbers, tags and lengths around a record's own bytes.
const RECORD_BYTES: usize = 64;

/// A page of records.
#[derive(Debug, Clone)]
pub struct ListRecordsRequest {
    /// Only keys that start so; all if empty.
    pub prefix: String,
    /// Cut to 1,000; 0 answers the empty page.
    pub page_size: u32,
    /// The page before's; the first page if empty.
    pub page_token: String,
    /// Who asks: a page token is good for nobody else.
    pub subject: String,
}

/// A page of records.
#[derive(Debug, Clone, Default)]
pub struct RecordsPage {
    /// The records, by key.
    pub records: Vec<Record>,
    /// For the next page; empty on the last.
    pub next_page_token: String,
}

impl Engine {
    /// Reads a record.
    pub async fn get_record(&self, name: RecordName) -> Result<Record, EngineError> {
        let key = caller_key(name.clone());
        let found = self
            .core
            .call("get_record", |storage| async move {
                records(&*storage, "get_record")?.get_record(key).await
            })
            .await?;
        found.ok_or(EngineError::RecordNotFound { name })
    }

    /// Sets a record that is at the expected revision, and answers the new one; or removes it, if
    /// the change says so.
    pub async fn change_record(&self, change: CompareAndSet) -> Result<i64, EngineError> {
        check_change(&change)?;
        Batcher::<Changes>::join(&self.core, change).await
    }

    /// Lists records by key.
    pub async fn list_records(
        &self,
        request: ListRecordsRequest,
    ) -> Result<RecordsPage, EngineError> {
        let ListRecordsRequest { prefix, page_size, page_token, subject } = request;
        let binding = Binding::of(&[subject.as_bytes(), b"records", prefix.as_bytes()]);
        let position = self.core.position(&binding, &page_token)?;
        if page_size == 0 {
            return Ok(RecordsPage::default());
        }
        let limit = page_size.min(EXTENT_MAX);
        let bytes_max = ANSWER_BYTES_MAX - RECORD_BYTES * limit as usize;
        let space = RecordSpace::Caller;
        let params = ListRecords { space, prefix, position, limit, bytes_max };
        let page = self
            .core
            .call("list_records", |storage| async move {
                records(&*storage, "list_records")?.list_records(params).await
            })
            .await?;
        let next = page.next.map(|position| self.core.page_tokens.mint(&binding, &position.0));
        Ok(RecordsPage { records: page.records, next_page_token: next.unwrap_or_default() })
    }
}

/// The key of a record of `RecordService`.
pub(crate) fn caller_key(name: RecordName) -> RecordKey {
    RecordKey { space: RecordSpace::Caller, name }
}

pub(crate) fn check_change(change: &CompareAndSet) -> Result<(), EngineError> {
    if let Some(value) = &change.value {
        if change.expected_revision < 0 {
            return Err(EngineError::invalid("expected_revision", "must not be below 0"));
        }
        return check_size("value", value.len() as u64, COORDINATED_BYTES_MAX);
    }
    if change.expected_revision < 1 {
        return Err(EngineError::invalid("expected_revision", "must be at least 1"));
    }
    Ok(())
}

/// Changes of single calls.
pub(crate) struct Changes;

impl Kind for Changes {
    type Item = CompareAndSet;
    type Answer = i64;
    const OPERATION: &'static str = "compare_and_set";

    fn batcher(core: &Core) -> &Batcher<Self> {
        &core.changes
    }

    fn bytes(change: &CompareAndSet) -> usize {
        change.value.as_ref().map_or(0, bytes::Bytes::len)
    }

    fn about(change: &CompareAndSet) -> Option<u64> {
        Some(about(&change.key))
    }

    async fn run(core: Arc<Core>, changes: Vec<CompareAndSet>) -> Vec<Result<i64, EngineError>> {
        let count = changes.len();
        let answers = match records(&*core.storage, Self::OPERATION) {
            Ok(records) => records.compare_and_set(changes).await,
            Err(error) => Err(error),
        };
        spread(Self::OPERATION, answers, count)
    }
}
