//! The rdq contract in Rust: generated messages, clients and servers, the descriptor set, and what
//! keeps unknown fields.
//!
//! Fields of type `Task`, `Attempt` and `AttemptError` are `Bytes` here: their encoded form, with
//! every field in it, known or not. Decode them as [`v1::Task`] and so on for a typed view; edit
//! them with [`raw`].

/// The generated code of package `rdq.v1`.
#[allow(clippy::all, clippy::pedantic, missing_docs, unreachable_pub)]
pub mod v1 {
    tonic::include_proto!("rdq.v1");
}

pub mod envelope;
pub mod raw;
pub mod time;

/// The contract as a serialized `FileDescriptorSet`, for reflection.
pub const DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bin"));

/// The version of the contract, `major.minor`.
pub const CONTRACT_VERSION: &str = "1.1";

/// The `domain` of every `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "rdq";

impl v1::ErrorReason {
    /// The `reason` of a `google.rpc.ErrorInfo`: the value's name without its prefix.
    pub fn reason(self) -> &'static str {
        self.as_str_name().trim_start_matches("ERROR_REASON_")
    }

    /// The value that `reason` names, if this version knows it.
    pub fn from_reason(reason: &str) -> Option<Self> {
        Self::from_str_name(&format!("ERROR_REASON_{reason}"))
    }
}
