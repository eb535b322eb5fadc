//! What a plugin offers beyond the contract.

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing: the process's memory.
    None,
    /// The death of a process, not a power cut.
    Process,
    /// A power cut.
    PowerCut,
}

/// Which of the faculties beside tasks a plugin has: exactly those whose accessor on
/// [`crate::Storage`] answers something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is there or not, whatever the others are")]
pub struct Faculties {
    /// [`crate::Storage::signals`]
    pub signals: bool,
    /// [`crate::Storage::streams`]
    pub streams: bool,
    /// [`crate::Storage::locks`]
    pub locks: bool,
    /// [`crate::Storage::records`]
    pub records: bool,
    /// [`crate::Storage::transactions`]
    pub transactions: bool,
    /// [`crate::Transactions::begin`] works.
    pub interactive: bool,
    /// [`crate::Storage::ledger`]
    pub ledger: bool,
}

impl Faculties {
    /// None of them.
    pub const NONE: Self = Self::all(false);
    /// All of them.
    pub const ALL: Self = Self::all(true);

    const fn all(has: bool) -> Self {
        Self {
            signals: has,
            streams: has,
            locks: has,
            records: has,
            transactions: has,
            interactive: has,
            ledger: has,
        }
    }

    /// What this storage's accessors answer.
    pub fn of(storage: &dyn crate::Storage) -> Self {
        Self {
            signals: storage.signals().is_some(),
            streams: storage.streams().is_some(),
            locks: storage.locks().is_some(),
            records: storage.records().is_some(),
            transactions: storage.transactions().is_some(),
            interactive: storage.transactions().is_some_and(crate::Transactions::interactive),
            ledger: storage.ledger().is_some(),
        }
    }
}

/// What a plugin offers beyond the contract. A capability only removes latency or transfer: the
/// engine works without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is there or not, whatever the others are")]
pub struct Capabilities {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// [`crate::Storage::wait_due`] works.
    pub notify: bool,
    /// [`crate::Storage::claim_when_due`] waits, and takes what is admitted in one step with its
    /// admission.
    pub waiting_claims: bool,
    /// Dead-letter filters are evaluated by the backend.
    pub filter_pushdown: bool,
    /// A batch of admissions is one step of the backend. Else the engine admits one at a time.
    pub batch_enqueue: bool,
}
