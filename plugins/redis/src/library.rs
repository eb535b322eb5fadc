//! The functions that change and read everything, as one library of the server.
//!
//! Redis Functions, not scripts by their hash: a library is stored and replicated with the data, so
//! it is there after a restart and a failover; its helpers are made once, not at each call; and each
//! function says by flags whether it writes and whether a full server may run it. The library's
//! name holds a hash of its text: servers of two versions side by side each load and call their own.
//! One that is missing all the same (`FUNCTION FLUSH`, a server without persistence) is loaded again
//! and the call, which was refused as a whole, repeated. What an upgrade leaves behind are a few
//! kilobytes; `FUNCTION DELETE` removes them.

use rdq_spi::{AttemptError, CLAIM_ATTEMPTS_MAX, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX};
use std::{
    fmt::Write as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

/// What the functions share, in the order in which they build on each other.
const SHARED: [&str; 6] = [
    include_str!("functions/store.lua"),
    include_str!("functions/tasks.lua"),
    include_str!("functions/index.lua"),
    include_str!("functions/history.lua"),
    include_str!("functions/transitions.lua"),
    include_str!("functions/answers.lua"),
];

/// The functions, each file by itself: Lua has no more than 200 names in one scope.
const FUNCTIONS: [&str; 13] = [
    include_str!("functions/admission.lua"),
    include_str!("functions/claims.lua"),
    include_str!("functions/holding.lua"),
    include_str!("functions/cancellation.lua"),
    include_str!("functions/reads.lua"),
    include_str!("functions/dead_letters.lua"),
    include_str!("functions/sweeps.lua"),
    include_str!("functions/queues.lua"),
    include_str!("functions/locks.lua"),
    include_str!("functions/records.lua"),
    include_str!("functions/streams.lua"),
    include_str!("functions/ledger.lua"),
    include_str!("functions/commits.lua"),
];

/// The library, under its name.
#[derive(Debug)]
pub(crate) struct Library {
    name: String,
    text: String,
}

impl Library {
    pub(crate) fn new() -> Self {
        let mut body = constants();
        for shared in SHARED {
            body += shared;
        }
        for functions in FUNCTIONS {
            _ = write!(body, "do\n{functions}end\n");
        }
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let name = format!("rdq_{:016x}", hasher.finish());
        let text = format!("#!lua name={name}\nlocal LIBRARY = '{name}'\n{body}");
        Self { name, text }
    }

    /// What `FUNCTION LOAD` takes.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The name by which one of its functions is called.
    pub(crate) fn function(&self, name: &str) -> String {
        format!("{}_{name}", self.name)
    }
}

/// What is the same on every backend.
fn constants() -> String {
    let mut text = String::new();
    for (name, value) in [
        ("RECORDS_MAX", HISTORY_RECORDS_MAX as usize),
        ("HISTORY_BYTES_MAX", HISTORY_BYTES_MAX),
        ("CLAIM_ATTEMPTS_MAX", CLAIM_ATTEMPTS_MAX),
    ] {
        _ = writeln!(text, "local {name} = {value}");
    }
    for (name, value) in [
        ("TYPE_LEASE_EXPIRED", AttemptError::LEASE_EXPIRED),
        ("TYPE_EXPIRED", AttemptError::EXPIRED),
    ] {
        _ = writeln!(text, "local {name} = '{value}'");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_tells_its_text() {
        let library = Library::new();
        assert_eq!(library.name, Library::new().name);
        assert!(library.text.starts_with(&format!("#!lua name={}\n", library.name)));
        assert_eq!(library.function("touch"), format!("{}_touch", library.name));
    }
}
