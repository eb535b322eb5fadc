//! The README's code, as written: its blocks are the examples, and the examples run.

use crate::harness::{Server, until};
use rdq_client::TaskStatus;
use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(folder().join(path)).unwrap()
}

#[test]
fn readme_shows_the_examples() {
    let readme = read("README.md");
    let blocks = readme.split("```").skip(1).step_by(2);
    let programs = blocks.filter_map(|block| block.strip_prefix("rust,no_run\n"));
    let programs: Vec<_> = programs.filter(|block| block.contains("fn main")).collect();
    let examples = ["produce", "work", "coordinate"];
    assert_eq!(programs, examples.map(|name| read(&format!("examples/{name}.rs"))));
}

/// An example, which cargo builds beside the tests.
fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    if !program.exists() {
        let build = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--package", "rdq-client", "--all-features"])
            .args(["--example", name])
            .current_dir(folder())
            .status();
        assert!(build.is_ok_and(|status| status.success()), "{name} cannot be built");
    }
    program
}

#[tokio::test]
async fn readme_runs_as_written() {
    let server = Server::start().await;
    let client = server.client().await;
    let run = |name| {
        let mut program = Command::new(example(name));
        program.env("RDQ_SERVER", server.address()).stdin(Stdio::null()).stdout(Stdio::piped());
        program.spawn().unwrap()
    };

    let mut produce = run("produce");
    let mut said = String::new();
    produce.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(produce.wait().unwrap().success());
    let id = said.trim().strip_prefix("enqueued ").unwrap();

    let mut work = run("work");
    let mut lines = BufReader::new(work.stdout.take().unwrap()).lines();
    until("the task is worked", async || {
        let task = client.get(id).await.unwrap();
        (task.status() == TaskStatus::Succeeded)
            .then(|| assert_eq!(task.result(), "sent to a@example.org"))
    })
    .await;
    assert_eq!(lines.next().unwrap().unwrap(), "sending to a@example.org, attempt 1");
    // As a supervisor ends it.
    let told = Command::new("kill").args(["-TERM", &work.id().to_string()]).status();
    assert!(told.unwrap().success());
    until("it ends in order", async || work.try_wait().unwrap().map(|end| assert!(end.success())))
        .await;

    let mut coordinate = run("coordinate");
    let mut said = String::new();
    coordinate.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(coordinate.wait().unwrap().success());
    assert_eq!(said, "order 1, generation 1\ninvoice 1, attempt 1\ntrue\n");
    assert_eq!(client.get("ship-1").await.unwrap().queue(), "shipping");
}
