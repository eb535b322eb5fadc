//! The rdq server process: gRPC services over an engine, configuration, limits, health, shutdown.
//! It decides nothing about tasks.

mod server; // start here
mod config;
mod connections;
mod limits;
mod health;
mod grpc;
mod convert;
mod ids;
mod status;

pub use config::{ConfigError, ServeArgs};
pub use server::{ServeError, Server, serve};
