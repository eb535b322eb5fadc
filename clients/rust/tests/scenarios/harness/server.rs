//! `rdq serve` as a process: on a free port, with a file in a folder of its own, ended when it is
//! dropped.

use super::awaited;
use rdq_client::Client;
use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tempfile::TempDir;

/// Lines of its log that a failure shows.
const LINES_SHOWN: usize = 40;

/// A server that is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    arguments: Vec<&'static str>,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one, and waits until it serves.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with more arguments.
    pub(crate) async fn start_with(arguments: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (port, log) = (free_port(), Arc::default());
        let child = spawn(folder.path(), port, arguments, &log);
        let mut server = Self { folder, port, arguments: arguments.to_vec(), child, log };
        server.serves().await;
        server
    }

    /// Waits until it serves. One whose port was taken meanwhile is started on another.
    async fn serves(&mut self) {
        let serving = async {
            loop {
                if self.child.try_wait().expect("a child of ours").is_some() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    self.child = spawn(self.folder.path(), self.port, &self.arguments, &self.log);
                }
                let client = Client::builder(self.address()).deadline(Duration::from_secs(2));
                if client.connect().await.is_ok() {
                    return;
                }
            }
        };
        awaited("the server serves", serving).await;
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    /// Starts it again after it was killed: on its port and its file.
    pub(crate) async fn restart(&mut self) {
        self.child = spawn(self.folder.path(), self.port, &self.arguments, &self.log);
        self.serves().await;
    }

    /// Its address.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A client of it.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address()).await.expect("the server serves")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = &log[log.len().saturating_sub(LINES_SHOWN)..];
            eprintln!("--- the server's last lines\n{}\n---", shown.join("\n"));
        }
    }
}

fn spawn(folder: &Path, port: u16, arguments: &[&str], log: &Arc<Mutex<Vec<String>>>) -> Child {
    let mut child = Command::new(program())
        .arg("serve")
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .args(["--http", &format!("127.0.0.1:{}", free_port())])
        .args(["--storage", &format!("sqlite:{}", folder.join("rdq.db").display())])
        .args(arguments)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rdq can be run");
    let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
    let lines = Arc::clone(log);
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    });
    child
}

/// The server under test: `RDQ_BIN`, else the one of this workspace, built if it is missing.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("RDQ_BIN") {
            return program.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let program = root.join(target.unwrap_or_else(|| "target".into())).join("debug/rdq");
        if !program.exists() {
            let build = Command::new(env!("CARGO"))
                .args(["build", "--locked", "--package", "rdq-cli", "--bin", "rdq"])
                .current_dir(&root)
                .status();
            assert!(build.is_ok_and(|status| status.success()), "the server cannot be built");
        }
        program
    })
}

/// A port that nobody has now. Below those that the system gives to outgoing connections, so that
/// it is still free when a killed server wants it back.
fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 9_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test runs at the same time start at different places.
    let start = std::process::id().wrapping_mul(53);
    loop {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("below 65,536");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
