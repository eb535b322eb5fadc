//! `rdq serve` as a process: started, killed, stopped, started again on the same storage and the
//! same port. It makes no calls but that to health.

use super::{awaited, calls, until};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// The binary under test.
pub(crate) const RDQ: &str = env!("CARGO_BIN_EXE_rdq");
/// How long a server that is told to end waits for its peers: longer than any test, so that one
/// that ends in order does so because nothing held it up.
const GRACE: &str = "1h";
/// Lines of its log that a failure shows.
const LINES_SHOWN: usize = 60;

/// How a server is started.
#[derive(Debug, Clone)]
struct Setup {
    storage: String,
    port: u16,
    http_port: u16,
    grace: String,
    environment: Vec<(String, String)>,
}

/// A server that is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    setup: Setup,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one on a storage, and waits until it serves.
    pub(crate) async fn start(storage: impl Into<String>) -> Self {
        Self::start_with(storage, &[]).await
    }

    /// The same, with a file that need not exist.
    pub(crate) async fn on_file(path: &Path) -> Self {
        Self::start(format!("sqlite:{}", path.display())).await
    }

    /// The same, with more in its environment.
    pub(crate) async fn start_with(
        storage: impl Into<String>,
        environment: &[(&str, &str)],
    ) -> Self {
        let storage = storage.into();
        let environment: Vec<_> =
            environment.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        for _ in 0..5 {
            let (port, http_port) = (free_port(), free_port());
            let setup = Setup {
                storage: storage.clone(),
                port,
                http_port,
                grace: GRACE.to_owned(),
                environment: environment.clone(),
            };
            let mut server = Self::spawn(setup, Arc::default());
            if server.serves().await {
                return server;
            }
            let log = server.log_text();
            assert!(log.contains("cannot listen"), "the server did not start:\n{log}");
        }
        panic!("no free port in five tries");
    }

    fn spawn(setup: Setup, log: Arc<Mutex<Vec<String>>>) -> Self {
        let mut child = Command::new(RDQ)
            .arg("serve")
            .args(["--listen", &format!("127.0.0.1:{}", setup.port)])
            .args(["--http", &format!("127.0.0.1:{}", setup.http_port)])
            .args(["--storage", &setup.storage, "--shutdown-grace", &setup.grace])
            .env("NO_COLOR", "1")
            .envs(setup.environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("rdq can be run");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is piped"));
        let lines = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { setup, child, log }
    }

    /// Waits until it serves; false if it ended instead.
    async fn serves(&mut self) -> bool {
        let waiting = async {
            loop {
                if self.child.try_wait().expect("a child of ours").is_some() {
                    // Its last lines may still be on their way.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    return false;
                }
                if self.health().await == Some(ServingStatus::Serving) {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        awaited("the server serves", waiting).await
    }

    /// What it says of its health; nothing if it does not answer.
    pub(crate) async fn health(&self) -> Option<ServingStatus> {
        let channel = self.endpoint().connect().await.ok()?;
        let request = HealthCheckRequest { service: String::new() };
        let answer = HealthClient::new(channel).check(request).await.ok()?;
        Some(answer.into_inner().status())
    }

    /// Kills it, as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    /// Starts it again, on its port and storage, after it ended.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    /// The same, with another environment.
    pub(crate) async fn restart_with(&mut self, environment: &[(&str, &str)]) {
        if !environment.is_empty() {
            let owned = |(key, value): &(&str, &str)| ((*key).into(), (*value).into());
            self.setup.environment = environment.iter().map(owned).collect();
        }
        for _ in 0..20 {
            *self = Self::spawn(self.setup.clone(), Arc::clone(&self.log));
            if self.serves().await {
                return;
            }
            // The port, or the lock of a process that is still going.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("the server did not start again:\n{}", self.log_text());
    }

    /// From its next start on, it waits so long for its peers when it is told to end.
    pub(crate) fn set_grace(&mut self, grace: &str) {
        grace.clone_into(&mut self.setup.grace);
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("a child of ours");
    }

    /// Stops it where it is. It answers nothing from then on.
    pub(crate) async fn freeze(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.child.id());
        until("every thread is stopped", async || {
            let threads = fs::read_dir(&threads).expect("a process of Linux").flatten();
            let mut states =
                threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
            // Stopped, or in a call to a disk, after which it is.
            let is_stopped = |stat: String| {
                let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
                matches!(state, Some('T' | 'D'))
            };
            states.all(is_stopped).then_some(())
        })
        .await;
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        wait(&mut self.child).await
    }

    /// Whether it runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_none()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Its address, as `--server` takes it.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.setup.port)
    }

    /// Its gRPC port.
    pub(crate) fn port(&self) -> u16 {
        self.setup.port
    }

    /// A connection that is made when it is needed, and made again.
    pub(crate) fn channel(&self) -> Channel {
        self.endpoint().connect_lazy()
    }

    fn endpoint(&self) -> Endpoint {
        calls::endpoint(&self.url())
    }

    /// Memory that it has in use, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a process of Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.expect("VmRSS has a number")
    }

    /// All that it wrote to standard error so far.
    pub(crate) fn log_text(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let shown = &log[log.len().saturating_sub(LINES_SHOWN)..];
            eprintln!("--- the server's last lines\n{}\n---", shown.join("\n"));
        }
    }
}

/// Waits for the end of a child.
pub(crate) async fn wait(child: &mut Child) -> ExitStatus {
    until("a child ends", async || child.try_wait().expect("a child of ours")).await
}

/// A port that nobody has now. Below those that the system gives to outgoing connections, so that
/// it is still free when a killed server wants it back.
fn free_port() -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test binaries that run at the same time start at different places.
    let start = std::process::id().wrapping_mul(37);
    loop {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + offset).expect("below 32,768");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
