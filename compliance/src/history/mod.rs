//! Histories: what callers asked of a store and what they were answered, recorded while they do it,
//! and judged afterwards by [`check`]. It decides nothing while the calls run, and does not repeat
//! what failed.
//!
//! A call whose answer got lost counts as "maybe applied": only a definite refusal is taken as one.

mod checker;
mod event;
mod recorder;
mod rules;
mod watched;

pub use checker::{Rule, Truth, Violation, check};
pub use event::{Answer, Event, Grant, Operation, Outcome};
pub use recorder::{History, Ticket};
