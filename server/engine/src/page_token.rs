//! Page tokens: signed keyset cursors. They carry a position of the storage, bound to one caller
//! and one list, so that nobody makes, changes or borrows one. No storage is known here.
//!
//! Layout: version, key id, check of these two, binding, position, HMAC over all before it. The
//! check tells a changed token from one under a retired key.

use crate::EngineError;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

const VERSION: u8 = 1;
const KEY_ID: usize = 4;
const HEADER: usize = 1 + KEY_ID + 4;
const BINDING: usize = 16;
const MAC: usize = 32;
const TOKEN_BYTES_MAX: usize = 8 << 10;
pub(crate) const KEY_BYTES_MIN: usize = 16;

/// What a token is bound to: the caller, and the list with its filter. Page size and the wish for
/// attempts may change between pages.
pub(crate) struct Binding([u8; BINDING]);

impl Binding {
    /// Each part goes in with its length, so that no two lists of parts look alike.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self(first(&digest.finalize()))
    }
}

/// Signs and reads page tokens.
pub(crate) struct PageTokens {
    key: Vec<u8>,
    key_id: [u8; KEY_ID],
}

impl PageTokens {
    pub(crate) fn new(key: Vec<u8>) -> Self {
        let key_id = first(&Sha256::digest([b"rdq page key ".as_slice(), &key].concat()));
        Self { key, key_id }
    }

    pub(crate) fn mint(&self, binding: &Binding, position: &[u8]) -> String {
        let mut token = header(VERSION, self.key_id).to_vec();
        token.extend_from_slice(&binding.0);
        token.extend_from_slice(position);
        let mac = self.mac(&token).finalize().into_bytes();
        token.extend_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The position of a token; `None` for the first page.
    pub(crate) fn read(
        &self,
        binding: &Binding,
        token: &str,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        if token.is_empty() {
            return Ok(None);
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(EngineError::InvalidCursor);
        }
        let token = URL_SAFE_NO_PAD.decode(token).map_err(|_| EngineError::InvalidCursor)?;
        if token.len() < HEADER + BINDING + MAC {
            return Err(EngineError::InvalidCursor);
        }
        let (head, rest) = token.split_at(HEADER);
        let (version, key_id) = (head[0], first(&head[1..]));
        if head != header(version, key_id) || version > VERSION {
            return Err(EngineError::InvalidCursor);
        }
        if version < VERSION || key_id != self.key_id {
            return Err(EngineError::StaleCursor);
        }
        let (signed, mac) = token.split_at(token.len() - MAC);
        self.mac(signed).verify_slice(mac).map_err(|_| EngineError::InvalidCursor)?;
        let (bound, position) = rest[..rest.len() - MAC].split_at(BINDING);
        if bound != binding.0 {
            return Err(EngineError::CursorBindingMismatch);
        }
        Ok(Some(position.to_vec()))
    }

    fn mac(&self, signed: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length");
        mac.update(signed);
        mac
    }
}

fn header(version: u8, key_id: [u8; KEY_ID]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = version;
    header[1..=KEY_ID].copy_from_slice(&key_id);
    let check = Sha256::digest([b"rdq page token ".as_slice(), &header[..=KEY_ID]].concat());
    header[1 + KEY_ID..].copy_from_slice(&first::<4>(&check));
    header
}

/// The first `N` bytes of a longer slice.
fn first<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&bytes[..N]);
    first
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a broken expectation is reported")]
mod tests {
    use super::*;

    fn tokens(key: u8) -> PageTokens {
        PageTokens::new(vec![key; 32])
    }

    #[test]
    fn a_token_comes_back_to_its_caller_and_its_list_only() {
        let tokens = tokens(1);
        let mine = Binding::of(&[b"alice", b"list", b"queue"]);
        let token = tokens.mint(&mine, b"position");
        assert_eq!(tokens.read(&mine, &token).unwrap(), Some(b"position".to_vec()));
        assert_eq!(tokens.read(&mine, "").unwrap(), None);
        for other in [
            Binding::of(&[b"bob", b"list", b"queue"]),
            Binding::of(&[b"alice", b"list", b"other"]),
            Binding::of(&[b"alicel", b"ist", b"queue"]),
        ] {
            let error = tokens.read(&other, &token).unwrap_err();
            assert!(matches!(error, EngineError::CursorBindingMismatch), "{error:?}");
        }
    }

    #[test]
    fn a_changed_token_is_invalid_whatever_byte_changed() {
        let tokens = tokens(1);
        let binding = Binding::of(&[b"alice"]);
        let raw = URL_SAFE_NO_PAD.decode(tokens.mint(&binding, b"position")).unwrap();
        for at in 0..raw.len() {
            let mut changed = raw.clone();
            changed[at] ^= 0x10;
            let error = tokens.read(&binding, &URL_SAFE_NO_PAD.encode(changed)).unwrap_err();
            assert!(matches!(error, EngineError::InvalidCursor), "byte {at}: {error:?}");
        }
        for garbage in ["a", "!!!", "AAAA", &"A".repeat(200), &"A".repeat(8_193)] {
            let error = tokens.read(&binding, garbage).unwrap_err();
            assert!(matches!(error, EngineError::InvalidCursor), "{garbage}: {error:?}");
        }
    }

    #[test]
    fn a_token_of_another_key_or_an_older_format_is_stale() {
        let binding = Binding::of(&[b"alice"]);
        let retired = tokens(2).mint(&binding, b"position");
        let older = [header(0, tokens(1).key_id).to_vec(), vec![0; 60]].concat();
        for token in [retired, URL_SAFE_NO_PAD.encode(older)] {
            let error = tokens(1).read(&binding, &token).unwrap_err();
            assert!(matches!(error, EngineError::StaleCursor), "{error:?}");
        }
    }
}
