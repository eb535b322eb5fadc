//! The SQLite storage of rdq: all tasks in one file, one thread that writes, readers beside it.
//!
//! Nothing here retries a task, classifies an error or reads a payload: the engine does.
#![doc = include_str!("../README.md")]

mod storage; // start here
mod writer;
mod agenda;
mod job;
mod transaction;
mod turns;
mod reader;

mod admission;
mod claims;
mod handoff;
mod holding;
mod dead_letters;
mod sweeps;
mod queues;
mod reads;
mod waiting;
mod coordination;

mod history;
mod reports;
mod rows;
mod records;
mod lanes;
mod token;
mod statements;

mod connection;
mod migrations;
mod checkpoint;
mod clock;
mod config;
mod errors;

#[cfg(test)]
mod broken;
#[cfg(test)]
mod disk_full;
#[cfg(test)]
mod plans;

pub use config::{OpenError, SqliteOptions, path_of_url};
pub use coordination::{Joined, join, join_open};
pub use storage::SqliteStorage;
