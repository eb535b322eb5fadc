//! The query plans of the statements.
