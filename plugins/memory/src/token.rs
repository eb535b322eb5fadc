//! Claim tokens: which store, and which of its claims. Generations are unique in a store, so the
//! task need not be in it.

use bytes::Bytes;
use rdq_spi::ClaimToken;
use std::hash::{BuildHasher as _, RandomState};

/// Tells stores apart, so that a token or a position of another one is not mistaken for one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunId([u8; 8]);

impl RunId {
    pub(crate) fn random() -> Self {
        // The standard library seeds each `RandomState` with fresh random keys.
        Self(RandomState::new().hash_one(0_u8).to_be_bytes())
    }

    pub(crate) fn bytes(self) -> [u8; 8] {
        self.0
    }

    pub(crate) fn mint(self, generation: i64) -> ClaimToken {
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.0);
        token[8..].copy_from_slice(&generation.to_be_bytes());
        ClaimToken(Bytes::copy_from_slice(&token))
    }

    /// The generation that the token names; `None` for bytes that this store never issued.
    pub(crate) fn read(self, token: &ClaimToken) -> Option<i64> {
        let (run, generation) = token.0.split_first_chunk::<8>()?;
        let generation = i64::from_be_bytes(generation.try_into().ok()?);
        (*run == self.0).then_some(generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_this_store_are_read() {
        let (run, other) = (RunId::random(), RunId::random());
        let token = run.mint(7);
        assert_eq!(run.read(&token), Some(7));
        assert_eq!(other.read(&token), None);
        for bytes in [&b""[..], b"short", &[0; 16], &[0; 17]] {
            assert_eq!(run.read(&ClaimToken(Bytes::from_static(bytes))), None);
        }
        let longer = [&token.0[..], b"x"].concat();
        assert_eq!(run.read(&ClaimToken(longer.into())), None);
    }
}
