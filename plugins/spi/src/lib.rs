//! The storage contract: the traits a backend implements, and their types. It knows no database,
//! no gRPC, no clock and no policy.
//!
//! Start with [`Storage`].

mod storage; // start here
mod admission;
mod claim;
mod resolution;
mod dead_letter;
mod listing;
mod sweep;
mod queue;

// Coordination: each a faculty that a plugin has or has not.
mod signals;
mod streams;
mod locks;
mod records;
mod transactions;
mod ledger;
pub mod answers;
pub mod replayed;
mod turns;

mod task;
mod attempt;
mod history;
pub mod keyset;
mod names;
mod numbers;
mod time;

mod capabilities;
mod schema;
mod error;
mod hints;
mod wakes;

pub use admission::{Admission, NewTask};
pub use attempt::{Attempt, AttemptError, AttemptReport};
pub use capabilities::{Capabilities, Durability, Faculties};
pub use claim::{
    Awaited, Cancelled, Claim, ClaimParams, ClaimQueue, ClaimRef, ClaimToken, Claimed,
    ExtendParams, Extended, HeldClaim,
};
pub use dead_letter::{DlqFilter, DlqListParams, PurgeParams, RedriveParams, Selection, Step};
pub use error::{BoxError, Result, StaleDetail, StorageError};
pub use hints::{DueHint, DueHints, HintHub};
pub use history::{CLAIM_ATTEMPTS_MAX, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, fold_at, shed};
pub use ledger::{
    Ledger, Mutation, MutationScope, MutationStatus, NewMutation, PruneParams, Pruned,
};
pub use listing::{ListParams, Page, Position};
pub use locks::{HeldLock, Hold, Locks, TryLock};
pub use names::{
    ChannelName, ConsumerName, EventKey, LockName, MutationKey, MutationKind, NameError,
    OperationName, OwnerName, QueueName, RecordName, ScheduleName, StreamName, SubjectName, TaskId,
    WorkerId,
};
pub use numbers::{duration_number, duration_of_number};
pub use queue::{
    Classification, Execution, Handler, Limits, QueueConfig, QueueRecord, QueueStats, Retention,
    Retry, VersionMismatch,
};
pub use records::{
    CompareAndSet, ListRecords, Record, RecordKey, RecordPage, RecordSpace, Records,
};
pub use resolution::{Call, Outcome, Resolution, Resolved};
pub use schema::Migrated;
pub use signals::{Signals, Topic, Wake, Wakes};
pub use storage::Storage;
pub use streams::{
    NewEvent, ReadFrom, ReadParams, SaveOffset, StreamEvent, Streams, TrimParams, Trimmed,
};
pub use sweep::{Age, DeadRetention, SweepParams, Swept};
pub use task::{AttemptOutcome, Overrides, Task, TaskStatus};
pub use time::{Moment, Timestamp, human_duration};
pub use transactions::{Applied, Operation, Rejected, Transaction, Transactions};
pub use turns::{StreamTurns, Turn};
pub use wakes::WakeHub;
