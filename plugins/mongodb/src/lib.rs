//! The MongoDB storage of rdq: all tasks in one database of a replica set that many servers share.
//!
//! Nothing here retries a task, classifies an error or reads a payload: the engine does.
#![doc = include_str!("../README.md")]

mod storage; // start here
mod calls;
mod database;
mod numbers;
mod changes;
mod rounds;
mod turns;

mod admission;
mod candidates;
mod gathered;
mod claims;
mod holding;
mod completions;
mod dead_letters;
mod sweeps;
mod queues;
mod reads;

mod coordination;

mod waiting;
mod notifier;
mod listener;

mod document;
mod history;
mod token;

mod migrations;
mod checks;
mod config;
mod clock;
mod errors;

pub use config::{DEFAULT_NAMESPACE, MongoOptions, OpenError};
pub use storage::MongoStorage;
