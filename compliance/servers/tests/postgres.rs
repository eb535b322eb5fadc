//! A PostgreSQL server of a test's own: started, killed, started again, and gone with its folder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rdq_test_servers::postgres::{self, PostgresServer};
use std::{net::TcpStream, path::Path};

fn answers(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[tokio::test]
async fn a_local_server_is_started_killed_started_again_and_gone() {
    if let Some(reason) = postgres::missing_locally() {
        eprintln!("ignored: {reason}");
        return;
    }
    let mut owner = PostgresServer::start().await.unwrap();
    let server = owner.local().unwrap();
    let (port, first) = (server.port(), server.pid().unwrap());
    assert!(answers(port));

    server.kill();
    assert!(!answers(port) && server.pid().is_none());

    server.start_again().unwrap();
    let second = server.pid().unwrap();
    assert!(answers(port) && first != second);

    drop(owner);
    assert!(!answers(port) && !Path::new(&format!("/proc/{second}")).exists());
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    if let Some(reason) = postgres::missing_locally() {
        eprintln!("ignored: {reason}");
        return;
    }
    let error = PostgresServer::start_with(&["no_such_setting=1"]).await.unwrap_err().to_string();
    assert!(error.contains("no_such_setting"), "{error}");
}
