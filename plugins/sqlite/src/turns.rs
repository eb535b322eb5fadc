//! Whose turn it is among the queues of a claim. It is kept in memory: each process that shares a
//! file is fair by itself, and then all of them are.

use std::collections::HashMap;

/// When each queue was served last, counted in services.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    services: u64,
    last: HashMap<i64, u64>,
}

impl Turns {
    /// When the queue was served last; what never was comes first.
    pub(crate) fn last(&self, queue: i64) -> u64 {
        self.last.get(&queue).copied().unwrap_or_default()
    }

    /// The queue gave tasks to a claim.
    pub(crate) fn serve(&mut self, queue: i64) {
        self.services += 1;
        self.last.insert(queue, self.services);
    }

    /// The queue is no more.
    pub(crate) fn forget(&mut self, queue: i64) {
        self.last.remove(&queue);
    }
}
