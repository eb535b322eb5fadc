//! Dead letters: lists, redrives and purges.

use crate::{Position, QueueName, TaskId, Timestamp};
use std::time::Duration;

/// Which dead letters; what is set must hold, all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct DlqFilter {
    /// The exact error type of the final attempt.
    pub error_type: Option<String>,
    /// The exact handler.
    pub handler_ref: Option<String>,
    /// Dead since this instant, inclusive.
    pub dead_from: Option<Timestamp>,
    /// Dead before this instant, exclusive.
    pub dead_to: Option<Timestamp>,
}

impl DlqFilter {
    /// Whether it lets everything through.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Arguments of [`crate::Storage::dlq_list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DlqListParams {
    /// The queue.
    pub queue: QueueName,
    /// Which of them; empty without [`crate::Capabilities::filter_pushdown`].
    pub filter: DlqFilter,
    /// Where the page begins; the newest if unset.
    pub position: Option<Position>,
    /// At least 1 (Bounded).
    pub limit: u32,
    /// Stop before the page outgrows this (Bounded); a first task always fits.
    pub bytes_max: usize,
    /// With whole histories; else only the final attempt, without stack and detail.
    pub include_attempts: bool,
}

/// Which dead letters of a queue to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// These; others are passed over.
    Ids(Vec<TaskId>),
    /// Those that match; never empty. Only with [`crate::Capabilities::filter_pushdown`].
    Filter(DlqFilter),
    /// Every one.
    All,
}

/// Arguments of [`crate::Storage::redrive`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveParams {
    /// The queue.
    pub queue: QueueName,
    /// Which.
    pub selection: Selection,
    /// Count only.
    pub dry_run: bool,
    /// Where the step begins; at the newest if unset.
    pub position: Option<Position>,
    /// At most so many in this step (Bounded).
    pub limit: u32,
    /// The first of this step is due after this.
    pub delay: Duration,
    /// Each further one is due so much later.
    pub spacing: Duration,
}

/// Arguments of [`crate::Storage::purge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PurgeParams {
    /// The queue.
    pub queue: QueueName,
    /// Which.
    pub selection: Selection,
    /// Count only.
    pub dry_run: bool,
    /// Where the step begins; at the newest if unset.
    pub position: Option<Position>,
    /// At most so many in this step (Bounded).
    pub limit: u32,
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// How many dead letters it changed, or would have.
    pub count: u64,
    /// Where the next step begins; `None` when done.
    pub next: Option<Position>,
}
