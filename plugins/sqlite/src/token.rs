//! Claim tokens: which claim of which task of which store. Nothing here says whether one is live.

use bytes::Bytes;
use rdq_spi::ClaimToken;

const LEN: usize = 24;

/// What a claim token says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) store_id: [u8; 8],
    pub(crate) task: i64,
    pub(crate) generation: i64,
}

impl Token {
    /// The token as the world sees it.
    pub(crate) fn encode(self) -> ClaimToken {
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend(self.store_id);
        bytes.extend(self.task.to_be_bytes());
        bytes.extend(self.generation.to_be_bytes());
        ClaimToken(Bytes::from(bytes))
    }

    /// Reads a token; `None` if this plugin cannot have issued it.
    pub(crate) fn decode(token: &ClaimToken) -> Option<Self> {
        let (store_id, rest) = token.0.split_first_chunk()?;
        let (task, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        rest.is_empty().then_some(Self {
            store_id: *store_id,
            task: i64::from_be_bytes(*task),
            generation: i64::from_be_bytes(*generation),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_back_and_other_lengths_are_none() {
        let token = Token { store_id: *b"01234567", task: i64::MAX, generation: 42 };
        let encoded = token.encode();
        assert_eq!(Token::decode(&encoded), Some(token));
        for len in 0..LEN {
            assert_eq!(Token::decode(&ClaimToken(encoded.0.slice(..len))), None);
        }
        let longer = [&encoded.0[..], b"x"].concat();
        assert_eq!(Token::decode(&ClaimToken(longer.into())), None);
    }
}
