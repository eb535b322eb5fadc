//! The PostgreSQL storage of rdq.
