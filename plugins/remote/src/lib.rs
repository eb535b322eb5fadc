#![doc = include_str!("../README.md")]
//!
//! It decides nothing, retries nothing but a subscription to hints, and caches nothing.

mod storage; // start here
mod client;
mod batches;
mod claims;
mod pages;
mod hints;
mod convert;
mod errors;

pub use storage::RemoteStorage;
