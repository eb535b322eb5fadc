//! Domain types to messages of the contract, and back. It checks shape, and judges nothing.

mod claims;
mod coordination;
mod ledger;
mod lists;
mod queues;
mod tasks;

pub(crate) use claims::{
    cancelled, claim, claim_request, extend_request, extended, live_claim, live_claims_request,
    release, resolution, resolved,
};
pub(crate) use coordination::{
    Change, applied, caller_only, change, events, held_lock, operation, publish_request,
    read_request, record, release_request, renew_request, save_offset_request, try_lock_request,
};
pub(crate) use ledger::{execute_request, mutation, prune_request, pruned, scope};
pub(crate) use lists::{dlq_list_request, list_request, pace, page_token, selector, stats};
pub(crate) use queues::{config_on_wire, queue_record};
pub(crate) use tasks::{admission, new_task, task};

/// Why an answer is not one of the contract; what is wrong with it.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) &'static str);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// A count on the wire.
fn on_wire(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// A count from the wire; none is below zero.
fn count(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}
