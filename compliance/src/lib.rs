//! The compliance kit: what DESIGN §10 promises of every rdq storage, as cases that run on any.
//!
//! It speaks to a storage through [`rdq_spi::Storage`] alone. It never names a plugin, knows no
//! engine and no gRPC, and reads no clock: time passes only in the storage.
#![doc = include_str!("../README.md")]

mod fixture; // start here
mod runner;

#[deny(dead_code, reason = "a case that `cases::all` does not list must not build")]
#[allow(clippy::wildcard_imports, reason = "the scene words are the language of the cases")]
mod cases;
mod given;
mod model;

pub mod crew;
pub mod fenced;
pub mod history;
pub mod holders;
pub mod tellers;

mod envelope;
mod hands;
mod random;

pub use fixture::Fixture;
pub use random::Random;
pub use runner::{Case, Summary, cases, check, check_unless, main, main_unless};
