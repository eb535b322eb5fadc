//! The SQLite storage of rdq.
