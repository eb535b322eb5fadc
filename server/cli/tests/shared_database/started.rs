//! Eight servers start at once on an empty database, and `rdq migrate` beside them. It becomes one.

use crate::harness::{
    Verdict,
    calls::{self, Tasks},
    database::{Database, Kind},
    server::{RDQ, Server},
};
use futures::future::join_all;
use rdq_compliance::Random;
use std::process::{Command, Stdio};

const SERVERS: usize = 8;
const MIGRATIONS: usize = 4;
const QUEUE: &str = "started";

pub(crate) async fn at_once_share_one_database(kind: Kind, _random: Random) -> Verdict {
    let database = Database::start(kind).await?;
    let migrations: Vec<_> = (0..MIGRATIONS)
        .map(|_| {
            let mut command = Command::new(RDQ);
            command.args(["migrate", "--output", "json", "--storage", &database.url()]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("rdq can be run")
        })
        .collect();
    let servers = join_all((0..SERVERS).map(|_| Server::start(database.url()))).await;
    let mut made = 0;
    for migration in migrations {
        let output = migration.wait_with_output().expect("a child of ours");
        assert!(output.status.success(), "{output:?}");
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        made += usize::from(told["from"].is_null());
    }
    eprintln!("{made} of {MIGRATIONS} found nothing");

    let clients: Vec<_> = servers.iter().map(|server| Tasks::new(server.channel())).collect();
    for (number, client) in clients.iter().enumerate() {
        let task = calls::task(&format!("t-{number}"), QUEUE, "x");
        client.clone().enqueue(calls::enqueue(&task)).await.expect("admitted");
    }
    for client in &clients {
        let stats = calls::stats(client, QUEUE).await.expect("stats");
        assert_eq!(stats.pending, i64::try_from(SERVERS).expect("small"));
    }
    Ok(())
}
