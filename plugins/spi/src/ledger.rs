//! The ledger: mutations that are observed once, and what was answered then.
//!
//! A mutation is recorded by a commit, with [`crate::Operation::Observe`]; what is recorded is read
//! and pruned here.

use crate::{Applied, MutationKey, MutationKind, OperationName, Result, SubjectName, Timestamp};
use async_trait::async_trait;
use bytes::Bytes;
use std::{fmt, time::Duration};

/// Names a mutation: scopes are one if all three parts are, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MutationScope {
    /// On whose behalf.
    pub subject: SubjectName,
    /// What is done.
    pub operation: OperationName,
    /// Which time it is done.
    pub key: MutationKey,
}

impl fmt::Display for MutationScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, operation, key } = self;
        write!(f, "{key:?} of {operation:?} for {subject:?}")
    }
}

/// Whether a mutation took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MutationStatus {
    /// It did.
    Accepted,
    /// It did not. It is remembered all the same.
    Rejected,
}

impl MutationStatus {
    /// How a backend names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }

    /// What a backend named so.
    pub fn from_stored(name: &str) -> Option<Self> {
        [Self::Accepted, Self::Rejected].into_iter().find(|status| status.as_str() == name)
    }
}

/// A mutation as somebody observes it, perhaps first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMutation {
    /// Its identity.
    pub scope: MutationScope,
    /// What kind of mutation it is.
    pub kind: MutationKind,
    /// What entitles to it, opaque.
    pub eligibility_claim: Bytes,
    /// A digest of the request, opaque.
    pub fingerprint: [u8; 32],
    /// What was decided.
    pub status: MutationStatus,
    /// What repetitions are answered, opaque.
    pub response: Bytes,
}

impl NewMutation {
    /// Whether `other` is the same request again; else the two are in conflict. What was decided is
    /// not compared: the first decision stands. This is not for a storage to judge.
    pub fn is_repeated_by(&self, other: &Self) -> bool {
        self.scope == other.scope
            && self.kind == other.kind
            && self.eligibility_claim == other.eligibility_claim
            && self.fingerprint == other.fingerprint
    }
}

/// A mutation that is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    /// What its first observation brought, byte for byte.
    pub first: NewMutation,
    /// What the other operations of its commit were answered, in their order. A backend stores them
    /// as [`crate::answers`] writes them; one that records before the plugin has them keeps a
    /// versioned form of its own.
    pub answers: Vec<Applied>,
    /// When it was observed, by the storage's clock.
    pub observed_at: Timestamp,
}

/// Arguments of [`Ledger::prune`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneParams {
    /// Mutations that were observed longer ago than this go, by the storage's clock: those whose
    /// `observed_at` is more than so many milliseconds (rounded up) before now.
    pub older_than: Duration,
    /// At least 1 (Bounded).
    pub limit: u32,
}

/// The answer to one step of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// How many mutations went.
    pub count: u64,
    /// Whether the step stopped at its limit, and more may be left.
    pub more: bool,
}

/// The ledger: the faculty behind `LedgerService`. Who has it has [`crate::Transactions`] too, and
/// applies [`crate::Operation::Observe`] in them; who has it not answers that operation with
/// [`crate::StorageError::Unsupported`], at its place, and applies nothing of the call.
///
/// # Contract
///
/// - **LedgerReplay.** A commit whose scope has a record already changes nothing, whatever else is in
///   it. It is rejected at index 0 with [`crate::StorageError::MutationObserved`], which carries the
///   record as it is stored. Whether that is a repetition or a conflict is for the caller to say: a
///   storage compares scopes and nothing else (**LedgerConflict**).
/// - **LedgerRace.** Of any number of concurrent commits of one scope, through whatever handles, one
///   is first. The others wait until it has committed and get its record, or until it has failed, and
///   then one of them is first. None of them gets an error that is only due to the race (a unique
///   key, a write conflict), but for [`crate::StorageError::Contention`] after 5 seconds.
/// - **LedgerReject.** A rejected mutation is recorded and answered as an accepted one is. It stands
///   alone in its commit ([`crate::Operation::observation`] sees to that).
/// - **CommitAtomicity.** The record and the effects of the other operations are there together or
///   not at all: whichever operation fails, whoever dies. A record is as durable as they are, and
///   kept until it is pruned.
/// - **Bounded.** A prune removes no more than its limit, the oldest first, and nothing that is
///   younger. A scope whose record went is observed first again.
#[async_trait]
pub trait Ledger: Send + Sync {
    /// Reads a mutation.
    async fn mutation(&self, scope: MutationScope) -> Result<Option<Mutation>>;

    /// One bounded step of removing old mutations.
    async fn prune(&self, params: PruneParams) -> Result<Pruned>;
}
