//! MongoDB, as a replica set of one. Each test has a database of its own.

use crate::{
    LocalServer, StartError, address,
    container::{self, Container, Image},
    local::{self, Spec},
    way::{self, Way},
};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
};
use tokio::sync::OnceCell;

/// Gives the URL of a server that tests may make databases on.
pub const VARIABLE: &str = "RDQ_TEST_MONGODB_URL";

pub(crate) const IMAGE: Image = Image {
    name: "mongo",
    tag: "7.0",
    port: 27017,
    environment: &[],
    command: &["mongod", "--replSet", SET, "--bind_ip_all"],
    ready: (LISTENING, 1),
};

const SET: &str = "rs0";
const LISTENING: &str = "Waiting for connections";
const PRIMARY: &str = "Transition to primary complete";

static SHARED: OnceCell<MongoServer> = OnceCell::const_new();

/// A MongoDB server.
#[derive(Debug)]
pub struct MongoServer {
    url: String,
    way: Way,
}

impl MongoServer {
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

    /// A server of the test's own: a replica set of one.
    pub async fn start() -> Result<Self, StartError> {
        if program().is_some() {
            return Self::start_with(&[]).await;
        }
        if container::engine_is_there() {
            let running = Container::start(&IMAGE).await?;
            let (host, port) = (running.host.clone(), running.port);
            // To itself it is at the port within its container.
            let initiated =
                tokio::task::spawn_blocking(move || initiate(&host, port, IMAGE.port)).await;
            initiated.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
            // Its own address in the set cannot be reached from here.
            let url = format!("mongodb://{}:{}/?directConnection=true", running.host, running.port);
            return Ok(Self { url, way: Way::Container { _running: running } });
        }
        Err(missing_server())
    }

    /// An installed server of the test's own, a replica set of one, with these parameters, as
    /// `name=value`.
    pub async fn start_with(parameters: &[&str]) -> Result<Self, StartError> {
        let program = program().ok_or_else(missing_server)?;
        Self::local_of(std::env::temp_dir(), program, Some(parameters)).await
    }

    /// A server of the test's own that is in no replica set.
    pub async fn start_standalone() -> Result<Self, StartError> {
        match program() {
            Some(program) => Self::local_of(std::env::temp_dir(), program, None).await,
            None => Err(missing_server()),
        }
    }

    /// An installed server of the test's own, a replica set of one, with its data in this folder,
    /// for instance on a disk that is the test's, too.
    pub async fn start_in(parent: &Path) -> Result<Self, StartError> {
        match program() {
            Some(program) => Self::local_of(parent.to_owned(), program, Some(&[])).await,
            None => Err(missing_server()),
        }
    }

    /// In a set if it has parameters, be they none.
    async fn local_of(
        parent: PathBuf,
        program: PathBuf,
        parameters: Option<&[&str]>,
    ) -> Result<Self, StartError> {
        let in_set = parameters.is_some();
        let parameters = parameters.unwrap_or_default().iter();
        let settings = parameters.flat_map(|it| ["--setParameter".into(), (*it).to_owned()]);
        let settings = settings.collect();
        let server = way::started(move || start_local(&parent, program, in_set, settings)).await?;
        let way = if in_set { "replicaSet=rs0" } else { "directConnection=true" };
        let url = format!("mongodb://127.0.0.1:{}/?{way}", server.port());
        Ok(Self { url, way: Way::Local(server) })
    }

    /// Its URL, with a query.
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
    let is_there = address::from_environment(VARIABLE).is_some()
        || program().is_some()
        || container::engine_is_there();
    (!is_there && !crate::all_are_demanded()).then(|| missing_server().to_string())
}

/// Why tests that kill, pause or configure a server of their own are to be ignored; `None` where
/// the program is installed, or has to be.
pub fn missing_locally() -> Option<String> {
    let is_there = program().is_some();
    (!is_there && !crate::all_are_demanded()).then(|| missing_server().to_string())
}

fn missing_server() -> StartError {
    let (what, package) = ("MongoDB server", "`.ci/install`");
    StartError::Missing { what, variable: VARIABLE, package }
}

fn program() -> Option<PathBuf> {
    // Where `.ci/install` puts what the system's packages do not have.
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin");
    local::find("mongod", [tools])
}

fn start_local(
    parent: &Path,
    program: PathBuf,
    in_set: bool,
    mut settings: Vec<String>,
) -> Result<LocalServer, StartError> {
    if in_set {
        settings.extend(["--replSet", SET].map(String::from));
    }
    let spec = Spec {
        program,
        account: None,
        arguments: |folder, port| {
            let mut arguments = vec!["--port".into(), port.to_string()];
            arguments.extend(["--bind_ip", "127.0.0.1", "--nounixsocket"].map(String::from));
            arguments.extend(["--dbpath".into(), folder.join("data").display().to_string()]);
            // Of the machine's memory it would take half.
            arguments.extend(["--wiredTigerCacheSizeGB", "0.5"].map(String::from));
            arguments
        },
        settings,
        ready: LISTENING,
        not_yet: None,
        end_signal: "KILL",
    };
    let mut server = LocalServer::start_in(parent, spec, |folder, _| {
        std::fs::create_dir(folder.join("data")).map_err(StartError::io("make a folder"))
    })?;
    if in_set {
        initiate("127.0.0.1", server.port(), server.port())?;
        server.wait_until(PRIMARY)?;
    }
    Ok(server)
}

/// Makes it the one member of its set, as `rs.initiate()` does.
fn initiate(host: &str, port: u16, own_port: u16) -> Result<(), StartError> {
    let member = [int32("_id", 0), string("host", &format!("127.0.0.1:{own_port}"))].concat();
    let members = embedded(3, "0", &member);
    let config = [string("_id", SET), embedded(4, "members", &members)].concat();
    let command = [embedded(3, "replSetInitiate", &config), string("$db", "admin")].concat();
    send(host, port, &document(&command)).map_err(StartError::io("initiate the replica set"))
}

/// Sends one command as an `OP_MSG`, and reads the first bytes of the answer.
fn send(host: &str, port: u16, command: &[u8]) -> std::io::Result<()> {
    const OP_MSG: i32 = 2013;
    let len = i32::try_from(16 + 4 + 1 + command.len()).unwrap_or(i32::MAX);
    let mut message = Vec::new();
    for number in [len, 1, 0, OP_MSG, 0] {
        message.extend(number.to_le_bytes());
    }
    // A section of kind 0: the command itself.
    message.push(0);
    message.extend(command);
    let mut connection = TcpStream::connect((host, port))?;
    connection.write_all(&message)?;
    connection.read_exact(&mut [0; 16])
}

fn document(elements: &[u8]) -> Vec<u8> {
    let len = i32::try_from(4 + elements.len() + 1).unwrap_or(i32::MAX);
    [&len.to_le_bytes()[..], elements, &[0]].concat()
}

fn element(kind: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[kind][..], name.as_bytes(), &[0], value].concat()
}

fn embedded(kind: u8, name: &str, elements: &[u8]) -> Vec<u8> {
    element(kind, name, &document(elements))
}

fn int32(name: &str, value: i32) -> Vec<u8> {
    element(16, name, &value.to_le_bytes())
}

fn string(name: &str, value: &str) -> Vec<u8> {
    let len = i32::try_from(value.len() + 1).unwrap_or(i32::MAX);
    element(2, name, &[&len.to_le_bytes()[..], value.as_bytes(), &[0]].concat())
}
