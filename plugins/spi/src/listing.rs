//! Keyset pages.

use crate::{QueueName, Task, TaskStatus};
use bytes::Bytes;

/// Where a page begins, and the high-water mark of its list: minted by the plugin, opaque to
/// everybody else. One that the plugin did not mint is [`crate::StorageError::InvalidPosition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position(pub Bytes);

/// Arguments of [`crate::Storage::list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListParams {
    /// The queue.
    pub queue: QueueName,
    /// Only this status, if set.
    pub status: Option<TaskStatus>,
    /// Where the page begins; the newest if unset.
    pub position: Option<Position>,
    /// At least 1 (Bounded).
    pub limit: u32,
    /// Stop before the page outgrows this (Bounded); a first task always fits.
    pub bytes_max: usize,
    /// With whole histories; else none of it.
    pub include_attempts: bool,
}

/// A page of tasks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Where the next page begins; `None` on the last. A page may be short, even empty, and still
    /// have a next one: a plugin bounds what one call reads.
    pub next: Option<Position>,
}
