//! What the test did, as a table.

use super::{fleet::Fleet, payloads::Payload};
use std::{collections::HashSet, fmt, sync::atomic::Ordering::Relaxed};

/// The whole of a run.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    /// What was enqueued.
    pub(crate) payloads: &'a [Payload],
    /// Who worked.
    pub(crate) fleet: &'a Fleet,
    /// Claims that workers took with them when they were killed.
    pub(crate) killed_claims: usize,
    /// Dead letters that were redriven.
    pub(crate) dead: usize,
    /// Errors that workers met.
    pub(crate) errors: usize,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events: HashSet<_> = self.payloads.iter().map(|it| &it.event).collect();
        let bytes: usize = self.payloads.iter().map(|it| it.bytes.len()).sum();
        let counts = &self.fleet.counts;
        for (what, count) in [
            ("payloads delivered", self.payloads.len()),
            ("  of so many events", events.len()),
            ("  bytes, all equal", bytes),
            ("attempts completed", counts.delivered.load(Relaxed)),
            ("attempts failed", counts.failed.load(Relaxed)),
            ("attempts failed for good", counts.failed_for_good.load(Relaxed)),
            ("attempts hung past the lease", counts.hung.load(Relaxed)),
            ("claims of killed workers", self.killed_claims),
            ("servers killed", 1),
            ("errors met by workers", self.errors),
            ("dead letters redriven", self.dead),
        ] {
            writeln!(f, "{what:<30}{count:>10}")?;
        }
        Ok(())
    }
}
