//! The PostgreSQL storage of rdq: all tasks in one schema of a database that many servers share.
//!
//! Nothing here retries a task, classifies an error or reads a payload: the engine does.
#![doc = include_str!("../README.md")]

mod storage; // start here
mod pool;
mod connections;
mod rounds;
mod turns;
mod heads;

mod admission;
mod handoff;
mod claims;
mod holding;
mod dead_letters;
mod sweeps;
mod queues;
mod reads;

mod waiting;
mod notifier;
mod listener;

mod coordination;

mod history;
mod rows;
mod token;

mod migrations;
mod checks;
mod config;
mod clock;
mod errors;

pub use config::{DEFAULT_NAMESPACE, OpenError, PostgresOptions};
pub use coordination::{JoinError, Joined, join, join_namespace};
pub use storage::PostgresStorage;
