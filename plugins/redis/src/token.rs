//! Claim tokens: a generation, and a nonce that each claim call draws. After a failover that lost
//! the newest writes a generation may be given twice; the nonce tells the two claims apart. What one
//! call claims is stored under one token; what callers get of it is of one task, and of no other.

use bytes::Bytes;
use rdq_spi::{ClaimToken, TaskId};
use std::hash::{BuildHasher as _, RandomState};

/// What a claim token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) generation: i64,
    pub(crate) nonce: [u8; 8],
}

impl Token {
    /// What no claim has: generations count from 1.
    pub(crate) const NEVER_ISSUED: Self = Self { generation: -1, nonce: [0; 8] };

    /// The token as the world sees it.
    pub(crate) fn encode(self, task: &TaskId) -> ClaimToken {
        let nonce = with_task(self.nonce, task);
        ClaimToken(Bytes::from([&self.generation.to_be_bytes()[..], &nonce].concat()))
    }

    /// Reads a token of a claim of this task; one that this plugin cannot have issued is of no claim.
    pub(crate) fn decode(token: &ClaimToken, task: &TaskId) -> Self {
        let read = || {
            let (generation, nonce) = token.0.split_first_chunk()?;
            let generation = i64::from_be_bytes(*generation);
            Some(Self { generation, nonce: with_task(nonce.try_into().ok()?, task) })
        };
        read().filter(|token| token.generation > 0).unwrap_or(Self::NEVER_ISSUED)
    }
}

/// Mixes the task into a nonce, or takes it out again.
fn with_task(nonce: [u8; 8], task: &TaskId) -> [u8; 8] {
    // FNV-1a: the same in every build, which the standard library's hashes need not be.
    let hash = task.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (u64::from_be_bytes(nonce) ^ hash).to_be_bytes()
}

/// A nonce that nobody has drawn before.
pub(crate) fn draw_nonce() -> [u8; 8] {
    // The standard library seeds each `RandomState` with fresh random keys.
    RandomState::new().hash_one(0_u8).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_for_its_task_alone_and_other_bytes_are_of_no_claim() {
        let (task, other) = (TaskId::stored("a"), TaskId::stored("b"));
        let token = Token { generation: 42, nonce: *b"01234567" };
        let encoded = token.encode(&task);
        assert_eq!(Token::decode(&encoded, &task), token);
        assert_ne!(Token::decode(&encoded, &other), token);
        for len in 0..encoded.0.len() {
            let cut = ClaimToken(encoded.0.slice(..len));
            assert_eq!(Token::decode(&cut, &task), Token::NEVER_ISSUED);
        }
        let longer = [&encoded.0[..], b"x"].concat();
        assert_eq!(Token::decode(&ClaimToken(longer.into()), &task), Token::NEVER_ISSUED);
    }
}
