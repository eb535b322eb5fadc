#![doc = include_str!("../README.md")]
//!
//! Read `storage` first: it locks the state and says which part of it answers. It knows no policy.

mod storage; // start here
mod state;
mod entry;
mod queue;

mod admission;
mod claims;
mod resolutions;
mod lists;
mod dead_letters;
mod sweeps;
mod hints;

mod coordination;
mod streams;
mod locks;
mod records;
mod ledger;
mod transactions;
mod undo;

mod clock;
mod history;
mod position;
mod token;

pub use storage::MemoryStorage;
