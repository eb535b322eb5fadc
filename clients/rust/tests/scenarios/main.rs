//! The scenarios of `clients/README.md`, each a test of that name, against a real server.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod harness;

mod producing;
mod working;
mod leases;
mod stopping;
mod contents;
mod operating;
mod tracing;
mod coordinating;
mod readme;
