//! The scenarios of `clients/README.md`, each a test of that name, against a real server.

mod harness;

mod producing;
mod working;
mod leases;
mod stopping;
mod contents;
mod operating;
mod tracing;
mod readme;
