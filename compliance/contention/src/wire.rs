//! Through the server: `rdq serve` on the backend, measured by `rdq bench`, all on this machine.

use crate::{
    Args,
    backends::{Backend, WireGoals},
    hand::Failure,
    rows::Wire,
};
use serde::Deserialize;
use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The store that the server keeps.
const STORE: &str = "wire";
/// Asked so often whether it serves, for so long.
const READY_POLL: Duration = Duration::from_millis(50);
const READY_POLLS: u32 = 600;

/// An rdq server. Dropping it ends it.
pub(crate) struct Server {
    rdq: PathBuf,
    storage: String,
    ports: [u16; 2],
    url: String,
    process: Child,
}

impl Server {
    /// Starts one on this store, and waits until it serves.
    pub(crate) async fn start(rdq: &Path, storage: &str) -> Result<Self, Failure> {
        let ports = [free_port()?, free_port()?];
        let url = format!("http://127.0.0.1:{}", ports[0]);
        let process = serve(rdq, storage, ports)?;
        let server = Self { rdq: rdq.to_owned(), storage: storage.to_owned(), ports, url, process };
        server.wait().await?;
        Ok(server)
    }

    /// Where it serves.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Ends it as a crash would; another one takes its place.
    pub(crate) async fn kill_and_start_again(&mut self) -> Result<(), Failure> {
        self.process.kill()?;
        self.process.wait()?;
        self.process = serve(&self.rdq, &self.storage, self.ports)?;
        self.wait().await
    }

    async fn wait(&self) -> Result<(), Failure> {
        for _ in 0..READY_POLLS {
            let mut ask = self.command();
            let answered = ask.arg("stats").stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            if answered.success() {
                return Ok(());
            }
            tokio::time::sleep(READY_POLL).await;
        }
        Err(format!("{} does not serve", self.rdq.display()).into())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.rdq);
        command.env("RDQ_SERVER", &self.url);
        command
    }

    fn bench(&self, arguments: &[String]) -> Result<Bench, Failure> {
        let mut bench = self.command();
        bench.args(["bench", "--output", "json"]).args(arguments).stderr(Stdio::inherit());
        let output = bench.output()?;
        if !output.status.success() {
            return Err(format!("rdq bench: {}", output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn serve(rdq: &Path, storage: &str, ports: [u16; 2]) -> Result<Child, Failure> {
    let [listen, http] = ports.map(|port| format!("127.0.0.1:{port}"));
    let mut serve = Command::new(rdq);
    serve.args(["serve", "--listen", &listen, "--http", &http, "--storage", storage]);
    Ok(serve.env("RDQ_LOG", "error").stdout(Stdio::null()).spawn()?)
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// What `rdq bench` reports, as far as the goals speak of it.
#[derive(Debug, Deserialize)]
struct Bench {
    lives: Option<Measured>,
    pick_up: Option<Measured>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    per_second: Option<f64>,
    p50_us: Option<u32>,
    p99_us: Option<u32>,
}

/// Measures whole lives and pick-ups; the best of the rounds.
pub(crate) async fn measure(
    args: &Args,
    rdq: &Path,
    backend: &dyn Backend,
    goals: WireGoals,
) -> Result<Wire, Failure> {
    let server = Server::start(rdq, &backend.url(STORE)).await?;
    let lives = |count: u64| -> Vec<String> {
        ["--only", "lives", "--tasks", &count.to_string()].map(String::from).into()
    };
    let pick_ups =
        ["--only", "pick_up", "--pick-ups", &args.pick_ups.to_string()].map(String::from);
    server.bench(&lives(args.wire_lives.div_ceil(4)))?; // warm
    let mut wire = Wire { backend: backend.name(), lives: 0.0, p50_us: None, p99_us: None, goals };
    for _ in 0..args.rounds {
        let bench = server.bench(&lives(args.wire_lives))?;
        let per_second = bench.lives.and_then(|lives| lives.per_second);
        wire.lives = wire.lives.max(per_second.unwrap_or_default());
        let pick_up = server.bench(&pick_ups)?.pick_up.ok_or("no pick-up was measured")?;
        if wire.p50_us.is_none_or(|best| pick_up.p50_us.is_some_and(|it| it < best)) {
            (wire.p50_us, wire.p99_us) = (pick_up.p50_us, pick_up.p99_us);
        }
    }
    eprintln!("{wire}");
    Ok(wire)
}
