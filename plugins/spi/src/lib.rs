//! The storage traits of rdq and their types.
