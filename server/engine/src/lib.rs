//! Every decision of rdq: when a task runs again and when it dies, what is claimed for whom, which
//! calls share a storage call, what is kept for how long. It knows no gRPC, no plugin and no clock
//! but for waiting; a storage is an `Arc<dyn rdq_spi::Storage>`.
//!
//! Start with [`Engine`].

mod engine; // start here
mod core;
mod options;
mod error;

// What callers ask for, one file each with its request and its answer.
mod admission;
mod claim;
mod follow;
mod work;
mod resolution;
mod heartbeat;
mod cancellation;
mod waiting;
mod listing;
mod dead_letters;
mod queue_admin;
mod statistics;
mod sweeping;
mod schedules;

// Coordination, the same.
mod signals;
mod streams;
mod subscription;
mod locks;
mod records;
mod outbox;
mod transactions;
mod interactive;
mod ledger;

// What the storage has for it, and how its wakes are shared.
mod faculties;
mod listeners;

// How claims reach their takers.
mod dispatch;
mod rounds;
mod parked;
mod screening;
mod feed;
mod feeds;
mod keeper;
mod leadership;

// Rules without I/O.
mod retry;
mod classification;
mod configuration;
mod report;
mod token;
mod page_token;
mod limits;
mod weight;
mod outbox_name;

mod ids;
mod queues;
mod batcher;
mod random;
mod clock;

pub use admission::Submission;
pub use claim::{ClaimRequest, ClaimedTask};
pub use classification::Judgement;
pub use dead_letters::{Pace, Progress, PurgeRequest, RedriveRequest};
pub use engine::Engine;
pub use error::EngineError;
pub use follow::{FollowRequest, Subscription};
pub use heartbeat::ExtendRequest;
pub use ids::new_id;
pub use interactive::OpenTransaction;
pub use ledger::Execution;
pub use listing::{DlqListRequest, ListPage, ListRequest};
pub use options::{EngineOptions, QueueFile, TransactionLimits};
pub use outbox::{ClaimMessagesRequest, NewMessage};
pub use outbox_name::OutboxName;
pub use queue_admin::{ListQueuesRequest, QueuePage, QueueView};
pub use records::{ListRecordsRequest, RecordsPage};
pub use resolution::{Action, ResolveRequest};
pub use schedules::{
    BoundaryTask, ListSchedulesRequest, RunSchedulesError, Schedule, ScheduleDefinition,
    SchedulePage,
};
pub use signals::{Heard, Hearing};
pub use subscription::{Events, SubscribeRequest};
pub use transactions::{OperationError, TransactionOperation};
pub use work::{LostClaim, WorkEvent, WorkEvents, WorkHandle, WorkStart};
