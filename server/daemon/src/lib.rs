//! The rdq server process: gRPC services over an engine, configuration, limits, health, shutdown.
//! It decides nothing about tasks.

mod server; // start here
mod schedules;
mod migrate;
mod config;
mod connections;
mod limits;
mod health;
mod grpc;
mod convert;
mod status;

pub use config::{ConfigError, MigrateArgs, ServeArgs};
pub use migrate::{Prepared, migrate};
pub use server::{ServeError, Server, serve};
