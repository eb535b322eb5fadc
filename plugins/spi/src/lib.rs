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

pub use admission::{Admission, NewTask};
pub use attempt::{Attempt, AttemptError, AttemptReport};
pub use capabilities::{Capabilities, Durability};
pub use claim::{
    Awaited, Cancelled, Claim, ClaimParams, ClaimQueue, ClaimRef, ClaimToken, Claimed,
    ExtendParams, Extended,
};
pub use dead_letter::{DlqFilter, DlqListParams, PurgeParams, RedriveParams, Selection, Step};
pub use error::{BoxError, Result, StaleDetail, StorageError};
pub use hints::{DueHint, DueHints, HintHub};
pub use history::{CLAIM_ATTEMPTS_MAX, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, fold_at, shed};
pub use listing::{ListParams, Page, Position};
pub use names::{NameError, QueueName, TaskId, WorkerId};
pub use numbers::{duration_number, duration_of_number};
pub use queue::{
    Classification, Execution, Handler, Limits, QueueConfig, QueueRecord, QueueStats, Retention,
    Retry, VersionMismatch,
};
pub use resolution::{Call, Outcome, Resolution, Resolved};
pub use schema::Migrated;
pub use storage::Storage;
pub use sweep::{Age, DeadRetention, SweepParams, Swept};
pub use task::{AttemptOutcome, Overrides, Task, TaskStatus};
pub use time::{Moment, Timestamp, human_duration};
