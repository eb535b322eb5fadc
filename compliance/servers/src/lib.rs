//! Real databases for tests. Each is a server whose address the environment gives, else a program
//! that is installed here, started on a free port in a temporary folder, else a container.
//!
//! It knows nothing of rdq and speaks to no database: it starts and ends them. Nothing that it
//! started outlives the test process, however that ends.
//!
//! A module for each database; they share the three ways and nothing else.

pub mod mongodb;
pub mod pgbouncer;
pub mod postgres;
pub mod redis;

mod address;
#[cfg_attr(not(feature = "containers"), path = "no_container.rs")]
mod container;
mod local;
mod proxy;
mod watchdog;
mod way;

pub use local::LocalServer;
pub use proxy::Proxy;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No address is given, no program is installed, no container engine answers.
    #[error("no {what}: set {variable}, install it ({package}), or start a container engine")]
    Missing {
        /// What was looked for.
        what: &'static str,
        /// The variable that gives an address.
        variable: &'static str,
        /// What has the program.
        package: &'static str,
    },
    /// The system refused something.
    #[error("{what}")]
    Io {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The program ended, or did not get ready.
    #[error("{program} did not start; it said:\n{output}")]
    NotReady {
        /// Which.
        program: String,
        /// What it wrote.
        output: String,
    },
    /// The container engine refused.
    #[cfg(feature = "containers")]
    #[error("the container did not start")]
    Container(#[from] testcontainers::TestcontainersError),
}

impl StartError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}

/// Whether a missing server is a failure: in CI all backends are demanded; to a person, tests that
/// need one are reported as ignored.
pub fn all_are_demanded() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}
