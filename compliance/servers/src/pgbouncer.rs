//! PgBouncer before a PostgreSQL server: what a storage has to notice, or to live with.

use crate::{
    LocalServer, StartError,
    local::{self, Account, Spec},
};
use std::{fs, path::PathBuf};

/// A pooler that this process started.
#[derive(Debug)]
pub struct PgBouncer {
    _server: LocalServer,
    port: u16,
}

impl PgBouncer {
    /// Starts one in this `pool_mode` before the server on this port of 127.0.0.1.
    pub fn start(pool_mode: &str, server_port: u16) -> Result<Self, StartError> {
        let Some(program) = program() else {
            return Err(missing_program());
        };
        let port = local::free_port()?;
        let settings = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={server_port} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = {pool_mode}\n\
             max_client_conn = 200\n"
        );
        let spec = Spec {
            program,
            account: Account::instead_of_root("postgres"),
            // Its port is in its file.
            arguments: |folder, _| vec![folder.join("pgbouncer.ini").display().to_string()],
            settings: Vec::new(),
            ready: "process up",
            not_yet: None,
            end_signal: "KILL",
        };
        let server = LocalServer::start(spec, |folder, _| {
            fs::write(folder.join("pgbouncer.ini"), &settings)
                .map_err(StartError::io("write the settings of PgBouncer"))
        })?;
        Ok(Self { _server: server, port })
    }

    /// The URL of the database through it. Any user is let in.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }
}

/// Why tests with a pooler are to be ignored; `None` where the program is installed, or has to be.
pub fn missing() -> Option<String> {
    let is_there = program().is_some();
    (!is_there && !crate::all_are_demanded()).then(|| missing_program().to_string())
}

fn program() -> Option<PathBuf> {
    local::find("pgbouncer", ["/usr/sbin".into()])
}

fn missing_program() -> StartError {
    StartError::Missing { what: "PgBouncer", variable: "PATH", package: "pgbouncer" }
}
