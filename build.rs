//! proto/ -> Rust, through protox, so that there is no protoc to install. Nothing else.

use prost::Message as _;
use prost_types::{FileDescriptorSet, field_descriptor_proto::Type};
use std::{env, error::Error, fs, path::PathBuf};

const FILES: [&str; 12] = [
    "rdq/v1/error_reason.proto",
    "rdq/v1/task.proto",
    "rdq/v1/task_service.proto",
    "rdq/v1/queue_service.proto",
    "rdq/v1/signal_service.proto",
    "rdq/v1/stream_service.proto",
    "rdq/v1/lock_service.proto",
    "rdq/v1/schedule_service.proto",
    "rdq/v1/outbox_service.proto",
    "rdq/v1/record_service.proto",
    "rdq/v1/transaction_service.proto",
    "rdq/v1/ledger_service.proto",
];

/// Messages that must keep fields this version does not know. prost drops those, so every field of
/// these types becomes `bytes` in the generated code (the same on the wire); `raw` reads them.
const KEPT_RAW: [&str; 3] = [".rdq.v1.Task", ".rdq.v1.Attempt", ".rdq.v1.AttemptError"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/rdq");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let mut compiled = protox::compile(FILES, ["proto"])?;
    // Clients and reflection see the contract as it is written.
    fs::write(out.join("descriptor.bin"), compiled.encode_to_vec())?;
    keep_raw(&mut compiled);
    tonic_prost_build::configure().bytes(".").compile_fds(compiled)?;
    Ok(())
}

fn keep_raw(set: &mut FileDescriptorSet) {
    let messages = set.file.iter_mut().flat_map(|file| &mut file.message_type);
    for field in messages.flat_map(|message| &mut message.field) {
        if field.type_name.as_deref().is_some_and(|name| KEPT_RAW.contains(&name)) {
            field.set_type(Type::Bytes);
            field.type_name = None;
        }
    }
}
