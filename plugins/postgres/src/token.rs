//! Claim tokens: which claim of which store. Nothing here says whether one is live.

use bytes::Bytes;
use rdq_spi::ClaimToken;

const LEN: usize = 16;

/// The store that a token must be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreId(pub(crate) [u8; 8]);

impl StoreId {
    /// The token of a claim of this store, as the world sees it.
    pub(crate) fn token(self, generation: i64) -> ClaimToken {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(self.0);
        bytes.extend(generation.to_be_bytes());
        ClaimToken(Bytes::from(bytes))
    }

    /// The claim that a token stands for; `None` if this store cannot have issued it.
    pub(crate) fn generation(self, token: &ClaimToken) -> Option<i64> {
        let (store_id, generation) = token.0.split_first_chunk()?;
        let generation = i64::from_be_bytes(generation.try_into().ok()?);
        (*store_id == self.0 && generation > 0).then_some(generation)
    }

    /// The name of the channel on which servers of this store tell each other what is due.
    pub(crate) fn channel(self) -> String {
        format!("rdq_{:016x}", u64::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_by_its_own_store_and_other_lengths_are_none() {
        let (store, other) = (StoreId(*b"01234567"), StoreId(*b"01234568"));
        let token = store.token(i64::MAX);
        assert_eq!(store.generation(&token), Some(i64::MAX));
        assert_eq!(other.generation(&token), None);
        for len in 0..LEN {
            assert_eq!(store.generation(&ClaimToken(token.0.slice(..len))), None);
        }
        let longer = [&token.0[..], b"x"].concat();
        assert_eq!(store.generation(&ClaimToken(longer.into())), None);
        assert_eq!(store.generation(&store.token(-1)), None);
    }
}
