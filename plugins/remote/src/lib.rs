//! A storage served by another rdq over gRPC.
