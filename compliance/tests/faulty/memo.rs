//! What mistakes need to remember across calls and handles.

use rdq_spi::{
    Call, Claim, ClaimRef, ClaimToken, ConsumerName, RecordName, StreamName, Task, TaskId,
};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Default)]
pub(crate) struct Memo {
    /// The newest claim of each task.
    pub(crate) newest: HashMap<TaskId, Claim>,
    /// The claims of the last call that had any.
    pub(crate) last_claims: Vec<Claim>,
    /// What ended each claim.
    pub(crate) spent: HashMap<(TaskId, Vec<u8>), (Call, rdq_spi::Resolved)>,
    /// The envelope that a repeated admission brought.
    pub(crate) envelopes: HashMap<TaskId, bytes::Bytes>,
    /// The generation of each task before its newest life.
    pub(crate) generations: HashMap<TaskId, i64>,
    /// The last entry of the last page.
    pub(crate) edge: Option<Task>,
    /// What consumers saved last.
    pub(crate) saved: HashMap<(StreamName, ConsumerName), i64>,
    /// The last record of the last page.
    pub(crate) last_record: Option<RecordName>,
    /// Offsets that a reader came upon once.
    pub(crate) late: HashSet<i64>,
    /// Calls so far.
    pub(crate) calls: usize,
}

impl Memo {
    /// The key of a claim.
    pub(crate) fn key(claim: &ClaimRef) -> (TaskId, Vec<u8>) {
        (claim.task_id.clone(), claim.token.0.to_vec())
    }

    /// The newest token of the task, in place of this one.
    pub(crate) fn newest_token(&self, claim: &ClaimRef) -> ClaimToken {
        self.newest.get(&claim.task_id).map_or(claim.token.clone(), |it| it.token.clone())
    }

    /// Counts a call; whether it is one of so many.
    pub(crate) fn is_one_in(&mut self, n: usize) -> bool {
        self.calls += 1;
        self.calls.is_multiple_of(n)
    }
}
