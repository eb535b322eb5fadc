//! Commands that last: a subscription that prints as tasks fall due, and readers that go away.

use super::shell::Shell;
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
};

#[tokio::test]
async fn a_followed_claim_prints_tasks_as_they_fall_due() {
    let shell = Shell::open().await;
    let mut command = shell.command(&["claim", "q", "--follow", "--output", "json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("rdq can be run");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for id in ["a", "b"] {
        shell.ok(&["enqueue", "q", "h", "--id", id]);
        let line = lines.next().expect("a line").expect("text");
        let claimed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(claimed["task"]["id"], id);
        let token = claimed["claim_token"].as_str().expect("text");
        shell.ok(&["complete", id, token]);
    }
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_the_command_quietly() {
    let shell = Shell::open().await;
    let mut command = shell.command(&["watch", "q", "--interval", "100ms"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("rdq can be run");
    let mut first = [0; 5];
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut first).expect("a table");
    assert_eq!(&first, b"QUEUE", "plain text where there is no terminal");
    drop(stdout);
    let ended = super::shell::ran(child.wait_with_output());
    assert_eq!((ended.code, ended.err.as_str()), (0, ""), "{ended:?}");
}

#[tokio::test]
async fn a_drained_server_ends_a_followed_claim_with_the_code_of_an_outage() {
    let mut shell = Shell::open().await;
    let mut command = shell.command(&["claim", "q", "--follow"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("rdq can be run");
    shell.ok(&["enqueue", "q", "h", "--id", "a"]);
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("a claim");
    shell.server.signal(rustix::process::Signal::TERM);
    assert!(shell.server.ended().await.success());
    let ended = super::shell::ran(child.wait_with_output());
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(line.starts_with('a') && ended.err.contains("error"), "{ended:?}");
}
