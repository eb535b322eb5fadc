#![doc = include_str!("../README.md")]
//!
//! Read `storage` first, then the functions in `functions/`, in the order in which `library` joins
//! them: everything that decides something of a task is there.

mod storage; // start here
mod coordination;
mod library;
mod connections;
mod hints;

mod requests;
mod replies;
mod records;
mod rows;
mod packing;
mod token;

mod config;
mod errors;
mod start;

pub use config::{OpenError, RedisConfig};
pub use storage::RedisStorage;
