#![doc = include_str!("../README.md")]
//!
//! It decides nothing, retries nothing but a subscription to hints or wakes, and caches nothing.

mod storage; // start here
mod coordination;
mod ledger;
mod transactions;
mod client;
mod batches;
mod claims;
mod pages;
mod hints;
mod wakes;
mod convert;
mod errors;

pub use storage::RemoteStorage;
