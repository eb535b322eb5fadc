//! A server, and commands run against it as a shell runs them.

use crate::harness::server::{RDQ, Server};
use serde_json::Value;
use std::{
    io::Write as _,
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// A server on a file of its own.
pub(super) struct Shell {
    pub(super) server: Server,
    pub(super) dir: TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Shell {
    pub(super) async fn open() -> Self {
        let dir = TempDir::new().expect("a folder");
        let server = Server::on_file(&dir.path().join("rdq.db")).await;
        Self { server, dir }
    }

    /// A command that talks to this server, ready to run.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("RDQ_SERVER", self.server.url());
        command
    }

    pub(super) fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).stdin(Stdio::null()).output())
    }

    /// Runs a command that must succeed, and answers its output.
    pub(super) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "rdq {args:?}: {ran:?}");
        ran.out
    }

    /// Runs a command that must succeed with `--output json`, and answers what it printed.
    pub(super) fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["--output", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("rdq {args:?}: {error}: {out}"))
    }

    /// Runs a command with something on its standard input.
    pub(super) fn fed(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("rdq can be run");
        child.stdin.take().expect("piped").write_all(input).expect("it reads");
        ran(child.wait_with_output())
    }

    /// Claims the one task that is due, and answers its id and token.
    pub(super) fn claim(&self, queue: &str) -> (String, String) {
        let claimed = self.json(&["claim", queue]);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        (text(&claimed["tasks"][0]["task"]["id"]), text(&claimed["tasks"][0]["claim_token"]))
    }
}

/// A command without a server, in an environment without settings.
pub(super) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(RDQ);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RDQ_")) {
        command.env_remove(name);
    }
    command.env_remove("COLUMNS").env("NO_COLOR", "1").args(args);
    command
}

pub(super) fn ran(output: std::io::Result<Output>) -> Ran {
    let output = output.expect("rdq can be run");
    Ran {
        code: output.status.code().expect("it ended by itself"),
        out: String::from_utf8(output.stdout).expect("output is text"),
        err: String::from_utf8(output.stderr).expect("errors are text"),
    }
}
