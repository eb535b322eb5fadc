//! Every number that bounds a call, with its reason, and the checks that more than one call makes.

use crate::EngineError;
use rdq_spi::{Overrides, QueueName};
use std::{collections::HashSet, time::Duration};

/// The contract: leases run from here …
pub(crate) const LEASE_MIN: Duration = Duration::from_millis(10);
/// … to here.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(12 * 3_600);
/// Tasks in one claim, one message or one page.
pub(crate) const EXTENT_MAX: u32 = 1_000;
/// Queues of one claim, subscription or stream.
pub(crate) const QUEUES_MAX: usize = 64;
/// Unresolved claims of one subscription.
pub(crate) const IN_FLIGHT_MAX: u32 = 10_000;
/// Open credits of one work stream.
pub(crate) const CREDITS_MAX: u32 = 100_000;
/// What a task's envelope has beside its payload: headers, names, fields of newer clients. With the
/// largest payload, progress and result, and a full history, it still fits an answer.
pub(crate) const BESIDE_PAYLOAD_BYTES_MAX: u64 = 320 << 10;
/// Progress, result.
pub(crate) const BLOB_BYTES_MAX: usize = 64 << 10;
/// No answer is larger: every gRPC client reads 4 MiB by default.
pub(crate) const ANSWER_BYTES_MAX: usize = 7 << 19;
/// An event's payload, a record's value, an outbox's message.
pub(crate) const COORDINATED_BYTES_MAX: u64 = 1 << 20;
/// Events that one storage call removes.
pub(crate) const STEP_EVENTS_MAX: u32 = 1_000;
/// Operations of one transaction.
pub(crate) const OPERATIONS_MAX: usize = 1_000;
/// Ids of one selection.
pub(crate) const SELECTION_IDS_MAX: usize = 1_000;
/// Dead letters or finished tasks that one storage call changes.
pub(crate) const STEP_TASKS_MAX: u32 = 1_000;
/// History records that come with an admission.
pub(crate) const ADMITTED_ATTEMPTS_MAX: usize = 1_000;

/// The queues of a claim, each once and in order: what claim loops are shared by.
pub(crate) fn queue_set(queues: &[QueueName]) -> Result<Vec<QueueName>, EngineError> {
    let mut set = queues.to_vec();
    set.sort();
    set.dedup();
    if set.is_empty() || set.len() > QUEUES_MAX {
        let message = format!("must name 1 to {QUEUES_MAX} queues, not {}", set.len());
        return Err(EngineError::invalid("queues", message));
    }
    Ok(set)
}

/// Drops repetitions and keeps the order.
pub(crate) fn once_each<T: Clone + Eq + std::hash::Hash>(items: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::with_capacity(items.len());
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

pub(crate) fn check_lease(field: &'static str, lease: Option<Duration>) -> Result<(), EngineError> {
    match lease {
        Some(lease) if !(LEASE_MIN..=LEASE_MAX).contains(&lease) => {
            Err(EngineError::invalid(field, "must be from 10 milliseconds to 12 hours"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn check_positive(
    field: &'static str,
    duration: Option<Duration>,
) -> Result<(), EngineError> {
    match duration {
        Some(Duration::ZERO) => Err(EngineError::invalid(field, "must be above zero")),
        _ => Ok(()),
    }
}

pub(crate) fn check_attempts(field: &'static str, count: Option<u32>) -> Result<(), EngineError> {
    match count {
        Some(0) => Err(EngineError::invalid(field, "must be at least 1")),
        _ => Ok(()),
    }
}

pub(crate) fn check_size(
    field: &'static str,
    size_bytes: u64,
    limit_bytes: u64,
) -> Result<(), EngineError> {
    if size_bytes > limit_bytes {
        return Err(EngineError::PayloadTooLarge { field, limit_bytes, size_bytes });
    }
    Ok(())
}

pub(crate) fn check_blob(field: &'static str, blob: &[u8]) -> Result<(), EngineError> {
    check_size(field, blob.len() as u64, BLOB_BYTES_MAX as u64)
}

/// What a task may override of its queue.
pub(crate) fn check_overrides(overrides: &Overrides) -> Result<(), EngineError> {
    check_attempts("task.max_attempts", overrides.max_attempts)?;
    check_lease("task.lease", overrides.lease)?;
    check_positive("task.initial_backoff", overrides.initial_backoff)?;
    check_positive("task.retention_dead", overrides.retention_dead)
}
