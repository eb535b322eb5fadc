//! The commands of the README, run as a newcomer runs them: every shell block outside of its part
//! "Start", in order, against one server. It changes the server's port, `TOKEN`, which is what the
//! last claim printed, and the kill, which must hit no server but the test's. What it does not run
//! is "Start" itself: that builds, and runs all tests.

mod harness;

use harness::{
    Ignored, Verdict,
    server::{RDQ, Server},
    trial,
};
use serde_json::Value;
use std::{
    env, fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// The port that the README speaks of.
const ADDRESS: &str = "127.0.0.1:7420";
/// How the README kills the server.
const KILL: &str = "pkill -KILL -x rdq";
/// `rdq claim` exits with this when nothing is due.
const NOTHING_DUE: i32 = 4;
/// What comes back with the README's backoff is due within this, on a busy machine too.
const DUE_WITHIN: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    harness::run(vec![
        trial("the_readmes_tours_do_what_they_say", |_| async { both_tours().await }),
        trial("the_readmes_tour_of_the_command_stands_alone", |_| async { command_tour().await }),
        trial("what_the_readmes_start_runs_is_there", |_| async {
            assert_start_is_there();
            Ok(())
        }),
    ])
}

async fn both_tours() -> Verdict {
    let mut visit = Visit::begin(Some(&grpcurl()?)).await;
    visit.walk(&tours()).await;

    let completed = visit.task("mail-1");
    assert_eq!((&completed["status"], &completed["result"]), (&"SUCCEEDED".into(), &"ok".into()));
    let failed_once = visit.task("mail-2");
    assert_eq!(failed_once["status"], "CANCELLED");
    assert_eq!(outcomes(&failed_once), ["RETRYABLE_FAILURE"]);
    visit.assert_redriven();
    Ok(())
}

async fn command_tour() -> Verdict {
    let blocks = tours();
    let is_command = |block: &Vec<String>| block.iter().all(|line| !line.starts_with("grpcurl"));
    let blocks: Vec<_> = blocks.into_iter().filter(is_command).collect();
    let mut visit = Visit::begin(None).await;
    visit.walk(&blocks).await;
    visit.assert_redriven();
    Ok(())
}

fn assert_start_is_there() {
    let commands: Vec<_> = blocks("## Start").concat();
    assert_eq!(commands, ["cargo run --profile quick --no-default-features -- serve", ".ci/test"]);
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    assert!(manifest.contains("[profile.quick]"));
    assert!(root().join(".ci/test").is_file());
}

/// A newcomer's working directory, with a server on the file in it.
struct Visit {
    server: Server,
    folder: TempDir,
    path: String,
    /// What the shell was told to keep: the `export` lines so far.
    exports: String,
    token: Option<String>,
}

impl Visit {
    async fn begin(grpcurl: Option<&Path>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        // Where the README says that the first command leaves it.
        let bin = folder.path().join("target/quick");
        fs::create_dir_all(&bin).expect("a directory");
        symlink(RDQ, bin.join("rdq")).expect("a link");
        let server = Server::on_file(&folder.path().join("rdq.db")).await;
        let mut path = env::var("PATH").expect("a path");
        if let Some(tools) = grpcurl.and_then(Path::parent) {
            path = format!("{}:{path}", tools.display());
        }
        Self { server, folder, path, exports: String::new(), token: None }
    }

    async fn walk(&mut self, blocks: &[Vec<String>]) {
        assert!(!blocks.is_empty(), "the README has no tour");
        for command in blocks.iter().flatten() {
            if command == KILL {
                self.server.kill();
                self.server.restart().await;
            } else if command.starts_with("export ") {
                self.exports = format!("{}{command}\n", self.exports);
            } else {
                self.run(command);
            }
        }
    }

    /// Runs a command that must succeed, and keeps the token that it printed. A claim is repeated
    /// until something is due, as the README tells its reader.
    fn run(&mut self, command: &str) {
        let mut waited = Duration::ZERO;
        loop {
            let (code, out) = self.shell(&self.filled_in(command));
            if code == NOTHING_DUE && command.starts_with("rdq claim") {
                assert!(waited < DUE_WITHIN, "{command}: nothing was due");
                std::thread::sleep(ASK_EVERY);
                waited += ASK_EVERY;
                continue;
            }
            assert_eq!(code, 0, "{command}:\n{out}");
            if command.starts_with("rdq claim") || command.ends_with("ClaimDue") {
                self.token = Some(token_in(&out).unwrap_or_else(|| panic!("{command}:\n{out}")));
            }
            return;
        }
    }

    fn filled_in(&self, command: &str) -> String {
        let command = command.replace(ADDRESS, self.server.url().trim_start_matches("http://"));
        match &self.token {
            Some(token) => command.replace("TOKEN", token),
            None => command,
        }
    }

    /// What a command exits with, and all that it prints.
    fn shell(&self, command: &str) -> (i32, String) {
        let mut bash = Command::new("bash");
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("RDQ_")) {
            bash.env_remove(name);
        }
        bash.env("RDQ_SERVER", self.server.url()).env("PATH", &self.path).env("NO_COLOR", "1");
        bash.args(["-euo", "pipefail", "-c", &format!("{}{command}", self.exports)]);
        let output = bash.current_dir(self.folder.path()).stdin(Stdio::null()).output();
        let output = output.expect("bash runs");
        let out = String::from_utf8(output.stdout).expect("text");
        let err = String::from_utf8_lossy(&output.stderr);
        (output.status.code().expect("it ended by itself"), out + &err)
    }

    fn task(&self, id: &str) -> Value {
        let (code, out) = self.shell(&format!("rdq get {id} --output json"));
        assert_eq!(code, 0, "{out}");
        serde_json::from_str::<Value>(&out).expect("JSON")["task"].take()
    }

    /// What the tour of the command promises: it failed, died, was redriven and completed, and the
    /// kill took nothing.
    fn assert_redriven(&self) {
        let task = self.task("mail-3");
        assert_eq!((&task["status"], &task["result"]), (&"SUCCEEDED".into(), &"sent".into()));
        assert_eq!((&task["payload"], &task["redrive_count"]), (&"hello".into(), &1.into()));
        assert_eq!(outcomes(&task), ["RETRYABLE_FAILURE", "PERMANENT_FAILURE", "SUCCESS"]);
    }
}

fn outcomes(task: &Value) -> Vec<&str> {
    let attempts = task["attempts"].as_array().expect("attempts");
    attempts.iter().filter_map(|attempt| attempt["outcome"].as_str()).collect()
}

/// The token in what a claim printed: grpcurl prints JSON, `rdq claim` a table.
fn token_in(out: &str) -> Option<String> {
    if let Ok(answer) = serde_json::from_str::<Value>(out) {
        return answer.pointer("/tasks/0/claimToken")?.as_str().map(str::to_owned);
    }
    let mut lines = out.lines().skip_while(|line| !line.starts_with("ID"));
    let column = lines.next()?.split_whitespace().position(|head| head == "TOKEN")?;
    lines.next()?.split_whitespace().nth(column).map(str::to_owned)
}

/// The shell blocks outside of "Start", which comes first, in order.
fn tours() -> Vec<Vec<String>> {
    let start = blocks("## Start").len();
    blocks("").split_off(start)
}

/// The shell blocks below a heading, or of the whole page, each as its commands.
fn blocks(heading: &str) -> Vec<Vec<String>> {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let mut found: Vec<Vec<String>> = Vec::new();
    let (mut is_below, mut is_block, mut goes_on) = (heading.is_empty(), false, false);
    for line in readme.lines() {
        if line.starts_with("```") {
            is_block = line == "```sh" && is_below;
            if is_block {
                found.push(Vec::new());
            }
        } else if is_block {
            let block = found.last_mut().expect("a block was begun");
            let part = line.strip_suffix('\\').unwrap_or(line).trim();
            match block.last_mut() {
                Some(command) if goes_on => *command = format!("{command} {part}"),
                _ => block.push(part.to_owned()),
            }
            goes_on = line.ends_with('\\');
        } else if line.starts_with("## ") && !heading.is_empty() {
            is_below = line == heading;
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The grpcurl of the checks' own set-up, else the system's.
fn grpcurl() -> Result<PathBuf, Ignored> {
    let ours = root().join(".tools/bin/grpcurl");
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("grpcurl"));
    let mut candidates = std::iter::once(ours).chain(in_path);
    let missing = || Ignored::Missing("no grpcurl in .tools/bin or PATH".to_owned());
    candidates.find(|file| file.is_file()).ok_or_else(missing)
}
