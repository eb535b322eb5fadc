//! The compliance kit of rdq storages.
