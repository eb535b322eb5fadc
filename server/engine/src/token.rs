//! The claim token that workers hold: the storage's token, and beside it what a later call needs to
//! know of the claim, so that a resolution is one storage call. Pure.
//!
//! The context is neither secret nor trusted: a worker who forges it gains nothing over the calls
//! that it may make anyway, since the storage's token alone decides whether they apply.

use bytes::{BufMut, Bytes, BytesMut};
use rdq_spi::{ClaimToken, QueueName};
use std::time::Duration;

const VERSION: u8 = 1;
const HAS_MAX_ATTEMPTS: u8 = 1;
const HAS_INITIAL_BACKOFF: u8 = 2;

/// A claim as its token tells it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClaimContext {
    /// The storage's own token.
    pub(crate) storage_token: ClaimToken,
    /// Which subscription or stream of which server took the claim; 0 for none.
    pub(crate) holder: u64,
    pub(crate) generation: i64,
    pub(crate) queue: QueueName,
    /// Attempts spent before this one.
    pub(crate) attempt_count: u32,
    /// The number that this attempt will have in the history.
    pub(crate) attempt_no: u32,
    /// The lease of the claim: what an extension that names none repeats.
    pub(crate) lease: Duration,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) initial_backoff: Option<Duration>,
}

impl ClaimContext {
    /// As bytes, for the worker.
    pub(crate) fn encode(&self) -> Bytes {
        let queue = self.queue.as_str().as_bytes();
        let mut out = BytesMut::with_capacity(64 + queue.len() + self.storage_token.0.len());
        out.put_u8(VERSION);
        let flags = u8::from(self.max_attempts.is_some()) * HAS_MAX_ATTEMPTS
            + u8::from(self.initial_backoff.is_some()) * HAS_INITIAL_BACKOFF;
        out.put_u8(flags);
        out.put_u64(self.holder);
        put_varint(&mut out, self.generation.cast_unsigned());
        put_varint(&mut out, u64::from(self.attempt_count));
        put_varint(&mut out, u64::from(self.attempt_no));
        put_varint(&mut out, nanos(self.lease));
        if let Some(max_attempts) = self.max_attempts {
            put_varint(&mut out, u64::from(max_attempts));
        }
        if let Some(initial_backoff) = self.initial_backoff {
            put_varint(&mut out, nanos(initial_backoff));
        }
        put_varint(&mut out, queue.len() as u64);
        out.put_slice(queue);
        out.put_slice(&self.storage_token.0);
        out.freeze()
    }

    /// From the bytes of a worker, whatever they are.
    pub(crate) fn decode(token: &Bytes) -> Option<Self> {
        let mut rest: &[u8] = token;
        if take(&mut rest, 1)? != [VERSION] {
            return None;
        }
        let flags = take(&mut rest, 1)?[0];
        if flags > HAS_MAX_ATTEMPTS | HAS_INITIAL_BACKOFF {
            return None;
        }
        let holder = u64::from_be_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let generation = take_varint(&mut rest)?.cast_signed();
        let attempt_count = u32::try_from(take_varint(&mut rest)?).ok()?;
        let attempt_no = u32::try_from(take_varint(&mut rest)?).ok()?;
        let lease = Duration::from_nanos(take_varint(&mut rest)?);
        let max_attempts = match flags & HAS_MAX_ATTEMPTS {
            0 => None,
            _ => Some(u32::try_from(take_varint(&mut rest)?).ok()?),
        };
        let initial_backoff = match flags & HAS_INITIAL_BACKOFF {
            0 => None,
            _ => Some(Duration::from_nanos(take_varint(&mut rest)?)),
        };
        let queue_len = usize::try_from(take_varint(&mut rest)?).ok()?;
        let queue = QueueName::stored(std::str::from_utf8(take(&mut rest, queue_len)?).ok()?);
        let storage_token = ClaimToken(token.slice(token.len() - rest.len()..));
        Some(Self {
            storage_token,
            holder,
            generation,
            queue,
            attempt_count,
            attempt_no,
            lease,
            max_attempts,
            initial_backoff,
        })
    }
}

/// Longer than 584 years is as long as that.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(taken)
}

fn put_varint(out: &mut BytesMut, mut value: u64) {
    while value >= 0x80 {
        out.put_u8(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    out.put_u8(u8::try_from(value).unwrap_or(0));
}

fn take_varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = take(from, 1)?[0];
        let part = u64::from(byte & 0x7f);
        if (part << shift) >> shift != part {
            return None;
        }
        value |= part << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]
mod tests {
    use super::*;

    fn context(rng: &mut fastrand::Rng) -> ClaimContext {
        let bytes: Vec<u8> = (0..rng.usize(0..40)).map(|_| rng.u8(..)).collect();
        ClaimContext {
            storage_token: ClaimToken(bytes.into()),
            holder: rng.u64(..),
            generation: rng.i64(..),
            queue: QueueName::new("é".repeat(rng.usize(1..120))).unwrap(),
            attempt_count: rng.u32(..),
            attempt_no: rng.u32(..),
            lease: Duration::from_nanos(rng.u64(..)),
            max_attempts: rng.bool().then(|| rng.u32(..)),
            initial_backoff: rng.bool().then(|| Duration::from_nanos(rng.u64(..))),
        }
    }

    #[test]
    fn every_context_comes_back() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..2_000 {
            let context = context(&mut rng);
            assert_eq!(ClaimContext::decode(&context.encode()), Some(context));
        }
    }

    #[test]
    fn decoding_is_total() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..20_000 {
            let mut bytes = if rng.bool() {
                context(&mut rng).encode().to_vec()
            } else {
                (0..rng.usize(0..60)).map(|_| rng.u8(..)).collect()
            };
            for _ in 0..rng.usize(0..4) {
                if !bytes.is_empty() {
                    let at = rng.usize(0..bytes.len());
                    bytes[at] = rng.u8(..);
                }
            }
            bytes.truncate(rng.usize(0..=bytes.len()));
            let _ = ClaimContext::decode(&bytes.into());
        }
        assert_eq!(ClaimContext::decode(&Bytes::new()), None);
    }
}
