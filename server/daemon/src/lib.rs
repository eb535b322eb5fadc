//! The rdq server process.
