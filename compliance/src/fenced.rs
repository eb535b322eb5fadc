//! What a lock protects, as callers keep it in a system of their own.

use rdq_spi::{HeldLock, OwnerName};
use std::sync::{Mutex, PoisonError};

/// A number that holders of one lock add to: they read it, and write it back. Who holds a later
/// generation than all before shuts the earlier ones out. Beside it stands one without that fence,
/// which shows what the fence is for.
#[derive(Debug, Default)]
pub struct FencedRegister(Mutex<Register>);

#[derive(Debug, Default)]
struct Register {
    /// The latest hold that was here.
    latest: Option<(i64, OwnerName)>,
    seen: Seen,
    counts: Counts,
}

/// What a holder read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    fenced: u64,
    unfenced: u64,
}

/// How holders fared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Increments that were written.
    pub written: u64,
    /// Increments of those who had read, and came too late to write.
    pub fenced_off: u64,
}

impl Register {
    /// Whether this hold may go on: no later one was here.
    fn admits(&mut self, held: &HeldLock) -> bool {
        let latest = self.latest.get_or_insert_with(|| (held.generation, held.owner.clone()));
        if held.generation == latest.0 {
            assert_eq!(latest.1, held.owner, "two hold generation {}", held.generation);
        }
        if held.generation > latest.0 {
            *latest = (held.generation, held.owner.clone());
        }
        held.generation == latest.0
    }
}

impl FencedRegister {
    fn register(&self) -> std::sync::MutexGuard<'_, Register> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in it; nothing for a holder who comes after a later one.
    pub fn read(&self, held: &HeldLock) -> Option<Seen> {
        let mut register = self.register();
        register.admits(held).then_some(register.seen)
    }

    /// Writes one more than was seen, and says so; not for a holder who comes after a later one.
    pub fn write_after(&self, held: &HeldLock, seen: Seen) -> bool {
        let mut register = self.register();
        register.seen.unfenced = seen.unfenced + 1;
        let is_admitted = register.admits(held);
        if is_admitted {
            register.seen.fenced = seen.fenced + 1;
            register.counts.written += 1;
        } else {
            register.counts.fenced_off += 1;
        }
        is_admitted
    }

    /// How holders fared so far.
    pub fn counts(&self) -> Counts {
        self.register().counts
    }

    /// Panics if an increment was lost, or if none had been lost without the fence although
    /// somebody was fenced off.
    pub fn judge(&self) {
        let register = self.register();
        let Counts { written, fenced_off } = register.counts;
        assert_eq!(register.seen.fenced, written, "each increment is there once");
        let tried = written + fenced_off;
        assert!(
            fenced_off == 0 || register.seen.unfenced < tried,
            "the fence would not have been needed: {register:?}"
        );
    }
}
