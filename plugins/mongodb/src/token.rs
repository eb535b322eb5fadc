//! Claim tokens: which claim of which task of which store. Nothing here says whether one is live.

use bytes::Bytes;
use rdq_spi::ClaimToken;

const LEN: usize = 24;

/// The store that a token must be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreId(pub(crate) [u8; 8]);

/// What a token names: the tasks that one call claimed share its generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// The number of the task's admission.
    pub(crate) seq: i64,
    pub(crate) generation: i64,
}

impl StoreId {
    /// The token of a claim of this store, as the world sees it.
    pub(crate) fn token(self, held: Held) -> ClaimToken {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(self.0);
        bytes.extend(held.seq.to_be_bytes());
        bytes.extend(held.generation.to_be_bytes());
        ClaimToken(Bytes::from(bytes))
    }

    /// The claim that a token stands for; `None` if this store cannot have issued it.
    pub(crate) fn held(self, token: &ClaimToken) -> Option<Held> {
        let (store_id, rest) = token.0.split_first_chunk()?;
        let (seq, generation) = rest.split_first_chunk()?;
        let seq = i64::from_be_bytes(*seq);
        let generation = i64::from_be_bytes(generation.try_into().ok()?);
        (*store_id == self.0 && generation > 0).then_some(Held { seq, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_by_its_own_store_and_other_lengths_are_none() {
        let (store, other) = (StoreId(*b"01234567"), StoreId(*b"01234568"));
        let held = Held { seq: 7, generation: i64::MAX };
        let token = store.token(held);
        assert_eq!(store.held(&token), Some(held));
        assert_eq!(other.held(&token), None);
        for len in 0..LEN {
            assert_eq!(store.held(&ClaimToken(token.0.slice(..len))), None);
        }
        let longer = [&token.0[..], b"x"].concat();
        assert_eq!(store.held(&ClaimToken(longer.into())), None);
        assert_eq!(store.held(&store.token(Held { seq: 7, generation: -1 })), None);
    }
}
