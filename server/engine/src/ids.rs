//! Ids of tasks whose callers chose none.

use rdq_spi::TaskId;
use std::sync::{Mutex, PoisonError};
use ulid::{Generator, Overflow};

/// A ULID greater than all that this process made before: tasks of one batch have ids in their
/// order, and go into the end of a storage's index side by side.
pub fn new_id() -> TaskId {
    static IDS: Mutex<Generator> = Mutex::new(Generator::new());
    let mut ids = IDS.lock().unwrap_or_else(PoisonError::into_inner);
    TaskId::stored(ids.generate().unwrap_or_else(Overflow::commit_overflow_increment).to_string())
}
