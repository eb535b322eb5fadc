//! PostgreSQL. Each test has a schema of its own in the one database `postgres`.

use crate::{
    LocalServer, StartError, address,
    container::{self, Container, Image},
    local::{self, Account, Spec},
    way::{self, Way},
};
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;

/// Gives the URL of a server that tests may make and drop schemas on.
pub const VARIABLE: &str = "RDQ_TEST_POSTGRES_URL";

pub(crate) const IMAGE: Image = Image {
    name: "postgres",
    tag: "17",
    port: 5432,
    environment: &[("POSTGRES_PASSWORD", "rdq")],
    command: &["postgres", "-c", "max_connections=400"],
    // Once for the initialisation, once to serve.
    ready: ("database system is ready to accept connections", 2),
};

static SHARED: OnceCell<PostgresServer> = OnceCell::const_new();

/// A PostgreSQL server.
#[derive(Debug)]
pub struct PostgresServer {
    url: String,
    way: Way,
}

impl PostgresServer {
    /// The server that all tests of this process share.
    pub async fn shared() -> Result<&'static Self, StartError> {
        let start = || async {
            match address::from_environment(VARIABLE) {
                Some(url) => Ok(Self { url, way: Way::Given }),
                None => Self::start().await,
            }
        };
        SHARED.get_or_try_init(start).await
    }

    /// A server of the test's own.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(&[]).await
    }

    /// A server of the test's own with these settings, as `name=value`.
    pub async fn start_with(settings: &[&str]) -> Result<Self, StartError> {
        if programs().is_some() {
            return Self::start_in(&std::env::temp_dir(), settings).await;
        }
        if container::engine_is_there() && settings.is_empty() {
            let running = Container::start(&IMAGE).await?;
            let (host, port) = (&running.host, running.port);
            let url = format!("postgres://postgres:rdq@{host}:{port}/postgres");
            return Ok(Self { url, way: Way::Container { _running: running } });
        }
        Err(missing_server())
    }

    /// An installed server of the test's own with its data in this folder, for instance on a disk
    /// that is the test's, too.
    pub async fn start_in(parent: &Path, settings: &[&str]) -> Result<Self, StartError> {
        let programs = programs().ok_or_else(missing_server)?;
        let settings = settings.iter().map(|it| format!("-c{it}")).collect();
        let parent = parent.to_owned();
        let server = way::started(move || start_local(&parent, &programs, settings)).await?;
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
        Ok(Self { url, way: Way::Local(server) })
    }

    /// Its URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process, if it is one that this test started: to be killed, paused, started again.
    pub fn local(&mut self) -> Option<&mut LocalServer> {
        self.way.local()
    }
}

/// Why tests that share a server are to be ignored; `None` where there is one, or has to be.
pub fn missing() -> Option<String> {
    let is_there = address::from_environment(VARIABLE).is_some() || can_be_started();
    (!is_there && !crate::all_are_demanded()).then(|| missing_server().to_string())
}

/// Why tests that kill, pause or configure a server of their own are to be ignored; `None` where
/// the program is installed, or has to be.
pub fn missing_locally() -> Option<String> {
    let is_there = programs().is_some();
    (!is_there && !crate::all_are_demanded()).then(|| missing_server().to_string())
}

fn can_be_started() -> bool {
    programs().is_some() || container::engine_is_there()
}

fn missing_server() -> StartError {
    StartError::Missing {
        what: "PostgreSQL server",
        variable: VARIABLE,
        package: "Debian package postgresql",
    }
}

/// The folder with the server's programs; of several versions the newest.
fn programs() -> Option<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = installed
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    let server = local::find("postgres", versions.into_iter().map(|(_, folder)| folder))?;
    let folder = server.parent()?.to_owned();
    folder.join("initdb").is_file().then_some(folder)
}

fn start_local(
    parent: &Path,
    programs: &Path,
    settings: Vec<String>,
) -> Result<LocalServer, StartError> {
    let spec = Spec {
        program: programs.join("postgres"),
        account: Account::instead_of_root("postgres"),
        arguments: |folder, port| {
            let data = folder.join("data").display().to_string();
            let settings = [
                format!("port={port}"),
                "listen_addresses=127.0.0.1".into(),
                // A socket's path may be longer than the system takes.
                "unix_socket_directories=".into(),
                "max_connections=400".into(),
            ];
            let settings = settings.into_iter().map(|setting| format!("-c{setting}"));
            ["-D".into(), data].into_iter().chain(settings).collect()
        },
        settings,
        ready: "database system is ready to accept connections",
        not_yet: Some("is still in use"),
        end_signal: "QUIT",
    };
    LocalServer::start_in(parent, spec, |folder, account| {
        let mut initdb = local::command(&programs.join("initdb"), folder, account)?;
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres"]);
        initdb.args(["--encoding=UTF8", "--locale=C.UTF-8", "-D"]).arg(folder.join("data"));
        local::run(initdb, folder)
    })
}
