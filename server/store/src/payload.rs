//! Payloads in process are JSON: what is stored is exactly what `serde_json` writes.

use crate::{Result, StoreError};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// The content type of what this crate enqueues.
pub(crate) const CONTENT_TYPE: &str = "application/json";
/// The handler of what this crate enqueues, by a schedule or not: in process the queue says it all.
pub(crate) const HANDLER: &str = "job";

/// Writes a payload as it is stored.
pub fn encode_payload<T: Serialize + ?Sized>(payload: &T) -> Result<Bytes> {
    Ok(serde_json::to_vec(payload)?.into())
}

/// Reads a payload.
pub fn decode_payload<T: DeserializeOwned>(payload: &[u8]) -> Result<T> {
    serde_json::from_slice(payload).map_err(StoreError::from)
}
