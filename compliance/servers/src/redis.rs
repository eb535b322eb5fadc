//! Redis and Valkey. Each test has a namespace of its own on a server that all share, or a server of
//! its own, which starts in a few milliseconds.

use crate::{
    LocalServer, StartError, address,
    container::{self, Container, Image},
    local::{self, Spec},
    way::{self, Way},
};
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// Redis 7.
    Redis,
    /// Valkey.
    Valkey,
}

/// Every write is on disk before it is acknowledged.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

pub(crate) const REDIS: Image = Image {
    name: "redis",
    tag: "7.4",
    port: 6379,
    environment: &[],
    command: &["redis-server", DURABLE[0], DURABLE[1], DURABLE[2], DURABLE[3]],
    ready: ("Ready to accept connections", 1),
};

pub(crate) const VALKEY: Image = Image {
    name: "valkey/valkey",
    tag: "9.0",
    port: 6379,
    environment: &[],
    command: &["valkey-server", DURABLE[0], DURABLE[1], DURABLE[2], DURABLE[3]],
    ready: ("Ready to accept connections", 1),
};

static SHARED_REDIS: OnceCell<RedisServer> = OnceCell::const_new();
static SHARED_VALKEY: OnceCell<RedisServer> = OnceCell::const_new();

impl Flavor {
    /// Gives the URL of a server that tests may keep namespaces on.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Redis => "RDQ_TEST_REDIS_URL",
            Self::Valkey => "RDQ_TEST_VALKEY_URL",
        }
    }

    /// Why tests that share a server are to be ignored; `None` where there is one, or has to be.
    pub fn missing(self) -> Option<String> {
        let is_there = address::from_environment(self.variable()).is_some()
            || self.program().is_some()
            || container::engine_is_there();
        (!is_there && !crate::all_are_demanded()).then(|| self.missing_server().to_string())
    }

    /// Why tests that kill, pause or configure a server of their own are to be ignored; `None`
    /// where the program is installed, or has to be.
    pub fn missing_locally(self) -> Option<String> {
        let is_there = self.program().is_some();
        (!is_there && !crate::all_are_demanded()).then(|| self.missing_server().to_string())
    }

    fn missing_server(self) -> StartError {
        let (what, package) = match self {
            Self::Redis => ("Redis server", "redis-server"),
            Self::Valkey => ("Valkey server", "valkey-server"),
        };
        StartError::Missing { what, variable: self.variable(), package }
    }

    fn image(self) -> &'static Image {
        match self {
            Self::Redis => &REDIS,
            Self::Valkey => &VALKEY,
        }
    }

    fn program(self) -> Option<PathBuf> {
        let name = match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        };
        // Where `.ci/install` puts what the system's packages do not have.
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin");
        local::find(name, [tools])
    }
}

/// A Redis or Valkey server.
#[derive(Debug)]
pub struct RedisServer {
    url: String,
    way: Way,
}

impl RedisServer {
    /// The server that all tests of this process share.
    pub async fn shared(flavor: Flavor) -> Result<&'static Self, StartError> {
        let shared = match flavor {
            Flavor::Redis => &SHARED_REDIS,
            Flavor::Valkey => &SHARED_VALKEY,
        };
        let start = || async move {
            match address::from_environment(flavor.variable()) {
                Some(url) => Ok(Self { url, way: Way::Given }),
                None => Self::start(flavor).await,
            }
        };
        shared.get_or_try_init(start).await
    }

    /// A server of the test's own.
    pub async fn start(flavor: Flavor) -> Result<Self, StartError> {
        Self::start_with(flavor, &[]).await
    }

    /// A server of the test's own with these arguments, for instance `--maxmemory 10mb`.
    pub async fn start_with(flavor: Flavor, settings: &[&str]) -> Result<Self, StartError> {
        if flavor.program().is_some() {
            return Self::start_in(flavor, &std::env::temp_dir(), settings).await;
        }
        if container::engine_is_there() && settings.is_empty() {
            let running = Container::start(flavor.image()).await?;
            let url = format!("redis://{}:{}", running.host, running.port);
            return Ok(Self { url, way: Way::Container { _running: running } });
        }
        Err(flavor.missing_server())
    }

    /// An installed server of the test's own with its data in this folder, for instance on a disk
    /// that is the test's, too.
    pub async fn start_in(
        flavor: Flavor,
        parent: &Path,
        settings: &[&str],
    ) -> Result<Self, StartError> {
        let program = flavor.program().ok_or_else(|| flavor.missing_server())?;
        let settings = settings.iter().map(|&it| it.to_owned()).collect();
        let parent = parent.to_owned();
        let server = way::started(move || start_local(&parent, program, settings)).await?;
        let url = format!("redis://127.0.0.1:{}", server.port());
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

fn start_local(
    parent: &Path,
    program: PathBuf,
    settings: Vec<String>,
) -> Result<LocalServer, StartError> {
    let spec = Spec {
        program,
        account: None,
        arguments: |folder, port| {
            let mut arguments = vec!["--port".into(), port.to_string()];
            arguments.extend(["--bind".into(), "127.0.0.1".into()]);
            arguments.extend(["--dir".into(), folder.display().to_string()]);
            // No snapshots beside the append-only file.
            arguments.extend(["--save".into(), String::new()]);
            arguments.extend(DURABLE.map(String::from));
            arguments
        },
        settings,
        ready: "Ready to accept connections",
        not_yet: None,
        end_signal: "TERM",
    };
    LocalServer::start_in(parent, spec, |_, _| Ok(()))
}
