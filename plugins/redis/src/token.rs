//! Claim tokens: a generation, and a nonce that each claim call draws. After a failover that lost
//! the newest writes a generation may be given twice; the nonce tells the two claims apart.

use bytes::Bytes;
use rdq_spi::ClaimToken;
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
    pub(crate) fn encode(self) -> ClaimToken {
        ClaimToken(Bytes::from([&self.generation.to_be_bytes()[..], &self.nonce].concat()))
    }

    /// Reads a token; one that this plugin cannot have issued is of no claim.
    pub(crate) fn decode(token: &ClaimToken) -> Self {
        let read = || {
            let (generation, nonce) = token.0.split_first_chunk()?;
            let generation = i64::from_be_bytes(*generation);
            Some(Self { generation, nonce: nonce.try_into().ok()? })
        };
        read().filter(|token| token.generation > 0).unwrap_or(Self::NEVER_ISSUED)
    }
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
    fn a_token_is_read_back_and_other_bytes_are_of_no_claim() {
        let token = Token { generation: 42, nonce: *b"01234567" };
        let encoded = token.encode();
        assert_eq!(Token::decode(&encoded), token);
        for len in 0..encoded.0.len() {
            assert_eq!(Token::decode(&ClaimToken(encoded.0.slice(..len))), Token::NEVER_ISSUED);
        }
        let longer = [&encoded.0[..], b"x"].concat();
        assert_eq!(Token::decode(&ClaimToken(longer.into())), Token::NEVER_ISSUED);
    }
}
