//! Names that nobody else has.

use crate::EngineError;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

/// 128 random bits, as text.
pub(crate) fn unique() -> Result<String, EngineError> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)
        .map_err(|error| EngineError::internal("random", error.to_string()))?;
    Ok(URL_SAFE_NO_PAD.encode(bits))
}
