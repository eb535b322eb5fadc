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
