//! Every decision of rdq.
