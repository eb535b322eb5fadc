//! The commands as a person and a script meet them: the real binary, against a real server on
//! SQLite. What the server decides is tested elsewhere.

mod commands {
    pub(super) mod shell; // start here
    mod tour;
    mod scripts;
    mod usage;
    mod migrate;
    mod streams;
}
mod harness;
