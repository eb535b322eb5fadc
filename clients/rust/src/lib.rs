//! A client of rdq: producers, workers, the operator's calls, events, locks and outboxes over its
//! gRPC contract.

#![doc = include_str!("../README.md")]

mod client; // start here
mod error;
mod retry;
mod task;
mod view;
mod producer;
mod worker;
mod claim;
mod outcome;
mod tasks;
mod dead_letters;
mod queues;
mod pages;
mod subscription;
mod lock;
mod outbox;
#[cfg(feature = "opentelemetry")]
mod trace;

pub use claim::{Claim, StopReason};
pub use client::{Client, ClientBuilder, Connection, UnaryDeadline};
pub use dead_letters::{Count, Counts, DlqFilter, Interrupted, Purge, Redrive, Selector};
pub use error::{Details, Error};
pub use lock::{Lock, LockGuard, LockLost};
pub use outbox::OutboxRelay;
pub use outcome::{Cause, HandlerError, Outcome, Permanent, RetryAfter, Retryable, Snooze, Typed};
pub use pages::{Items, Page, Pages};
pub use queues::{Queue, QueueConfig, VersionMismatch};
pub use subscription::{Subscription, SubscriptionError};
pub use task::{Enqueued, NewTask};
pub use tasks::{Cancelled, ListDeadLetters, ListTasks, QueueStats};
pub use view::{Attempt, AttemptError, AttemptOutcome, Task, TaskStatus};
pub use worker::{
    Receive, Returned, RunningWorker, Stopped, Worker, WorkerBuilder, shutdown_signal,
};

/// The messages and stubs of the contract: see [`Client::connection`].
pub use rdq_proto::v1;

/// The version of the contract that this client speaks, `major.minor`.
pub use rdq_proto::CONTRACT_VERSION;

/// The bytes of payloads, results and checkpoints.
pub use bytes::Bytes;
/// What encodes a message of [`v1`], such as a task that goes into a commit.
pub use prost::Message;
/// The gRPC code of an [`Error`].
pub use tonic::Code;
