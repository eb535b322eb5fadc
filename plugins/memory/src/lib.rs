//! The in-memory storage of rdq.
