//! Redis and Valkey servers of a test's own: started, killed, started again on their data, and gone
//! with their folder.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rdq_test_servers::redis::{Flavor, RedisServer};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::Path,
};

const BOTH: [Flavor; 2] = [Flavor::Redis, Flavor::Valkey];

fn is_missing(flavor: Flavor) -> bool {
    let reason = flavor.missing_locally();
    reason.inspect(|reason| eprintln!("ignored: {reason}")).is_some()
}

/// Says a line to a server and hears so many bytes.
fn ask(port: u16, line: &str, answer: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "{line}\r\n").unwrap();
    let mut heard = vec![0; answer.len()];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), answer);
}

#[tokio::test]
async fn what_a_local_server_acknowledged_is_there_after_it_was_killed() {
    for flavor in BOTH.into_iter().filter(|flavor| !is_missing(*flavor)) {
        let mut owner = RedisServer::start(flavor).await.unwrap();
        let server = owner.local().unwrap();
        let (port, first) = (server.port(), server.pid().unwrap());
        ask(port, "SET key value", "+OK");

        server.kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err() && server.pid().is_none());
        server.start_again().unwrap();

        let second = server.pid().unwrap();
        assert_ne!(first, second);
        ask(port, "GET key", "$5\r\nvalue");
        drop(owner);
        assert!(!Path::new(&format!("/proc/{second}")).exists());
    }
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    for flavor in BOTH.into_iter().filter(|flavor| !is_missing(*flavor)) {
        let started = RedisServer::start_with(flavor, &["--no-such-setting", "1"]).await;
        let error = started.unwrap_err().to_string();
        assert!(error.contains("no-such-setting"), "{error}");
    }
}
