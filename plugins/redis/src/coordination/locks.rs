//! What functions of locks take and answer. It decides nothing.

use crate::{
    packing::{Packer, Unpacker},
    replies::Reply,
    requests::Args,
};
use rdq_spi::{HeldLock, Hold, OwnerName, TryLock};
use std::time::Duration;

/// In place of a generation: any.
const ANY: i64 = -1;

pub(super) fn try_lock(params: &TryLock) -> Args {
    let TryLock { name, owner, ttl } = params;
    vec![Packer::default().millis(*ttl).name(owner.as_str()).name(name.as_str()).done()]
}

pub(super) fn hold(hold: &Hold, ttl: Duration) -> Args {
    let Hold { name, owner, generation } = hold;
    // Below the first one there is none.
    let generation = generation.map_or(ANY, |generation| generation.max(0));
    let hold = Packer::default().millis(ttl).i64(generation);
    vec![hold.name(owner.as_str()).name(name.as_str()).done()]
}

/// A hold, or none.
#[expect(clippy::option_option, reason = "an answer that cannot be read is not one of none")]
pub(super) fn held(reply: Reply) -> Option<Option<HeldLock>> {
    let answer = reply.bytes_or_none()?;
    if answer.is_empty() {
        return Some(None);
    }
    let mut from = Unpacker(&answer);
    let (generation, expires_at) = (from.i64()?, from.timestamp()?);
    let remaining = Duration::from_millis(from.i64()?.try_into().ok()?);
    let owner = OwnerName::stored(from.name()?);
    Some(Some(HeldLock { owner, generation, expires_at, remaining }))
}
