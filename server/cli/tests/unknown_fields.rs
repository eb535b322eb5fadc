//! F25: a client of a newer contract, in Python, sends fields that this server does not know, at
//! every level. Each RPC that returns the task returns them, through a failure, the dead-letter
//! queue, a server that is killed, a redrive and the completion. The client is the judge; here are
//! its set-up and the server.

mod harness;

use harness::{Ignored, Verdict, server::Server, trial};
use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};
use tempfile::TempDir;

fn main() -> ExitCode {
    harness::run(vec![
        trial("fields_of_a_newer_client_are_kept_in_sqlite", |_| async { kept_in_sqlite().await }),
        trial("fields_of_a_newer_client_are_kept_in_memory", |_| async { kept_in_memory().await }),
    ])
}

async fn kept_in_sqlite() -> Verdict {
    let client = NewerClient::generated()?;
    let mut server = Server::on_file(&client.folder.path().join("rdq.db")).await;
    client.run("until_dead", &server);
    server.kill();
    server.restart().await;
    client.run("from_dead_on", &server);
    server.kill();
    server.restart().await;
    client.run("after_the_end", &server);
    Ok(())
}

async fn kept_in_memory() -> Verdict {
    let client = NewerClient::generated()?;
    let server = Server::start("memory:").await;
    for part in ["until_dead", "from_dead_on", "after_the_end"] {
        client.run(part, &server);
    }
    Ok(())
}

/// A Python with gRPC, and stubs of a contract that has more fields than ours.
struct NewerClient {
    python: PathBuf,
    folder: TempDir,
}

impl NewerClient {
    fn generated() -> Result<Self, Ignored> {
        let folder = tempfile::tempdir().expect("a directory");
        let client = Self { python: python_with_grpc()?, folder };
        client.python(&script("newer_contract.py"), |python| {
            python.arg(root().join("proto")).arg(client.folder.path());
        });
        Ok(client)
    }

    /// Runs one part of the client's story. What it finds wrong fails the test.
    fn run(&self, part: &str, server: &Server) {
        self.python(&script("client.py"), |python| {
            python.arg(server.url().trim_start_matches("http://")).arg(part);
        });
    }

    fn python(&self, script: &Path, arguments: impl FnOnce(&mut Command)) {
        let mut python = Command::new(&self.python);
        python.arg("-B").arg(script).env("PYTHONPATH", self.folder.path().join("stubs"));
        arguments(&mut python);
        let output = python.output().expect("python runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{python:?} failed:\n{told}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unknown_fields").join(name)
}

/// The Python of the checks' own set-up, else the system's.
fn python_with_grpc() -> Result<PathBuf, Ignored> {
    let candidates = [root().join(".tools/venv/bin/python"), PathBuf::from("python3")];
    let has_grpc = |python: &PathBuf| {
        let asked = Command::new(python).args(["-c", "import grpc, grpc_tools"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    let missing = || Ignored::Missing("a python3 with grpcio and grpcio-tools".to_owned());
    candidates.into_iter().find(has_grpc).ok_or_else(missing)
}
