//! The main job on real input: every example payload that GitHub documents of its webhooks is
//! enqueued, and worked off by workers of which some fail, some hang past their lease and some are
//! killed, on a server that is killed once in between. Each payload arrives byte for byte, at once
//! or after it was dead and redriven.

mod webhooks {
    pub(super) mod payloads;
    pub(super) mod fleet;
    pub(super) mod report;
}
mod harness;

use harness::{
    Verdict,
    calls::{self, Tasks},
    child::{ChildWorker, Job, Orders},
    crew::Way,
    recorded::Recorded,
    server::{RDQ, Server},
    trial, until,
};
use rdq_compliance::{
    Random,
    history::{Answer, History, Outcome},
};
use rdq_proto::{
    time,
    v1::{self, queue_service_client::QueueServiceClient},
};
use rdq_spi::TaskStatus;
use std::{
    process::{Command, ExitCode},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use webhooks::{
    fleet::{Fate, Fleet},
    payloads::{Payload, payloads},
    report::Report,
};

const QUEUE: &str = "webhooks";
/// Longer than a worker takes for a handful of tasks, on a busy machine too: only those that hang
/// should outlive it, since a task has few attempts.
const LEASE: Duration = Duration::from_secs(3);
const MAX_ATTEMPTS: i32 = 6;
const KILLED_WORKERS: usize = 3;

fn main() -> ExitCode {
    harness::run(vec![trial("every_payload_arrives_byte_for_byte", every_payload_arrives)])
}

async fn every_payload_arrives(random: Random) -> Verdict {
    let payloads = payloads()?;
    assert!(payloads.len() > 300, "only {} payloads", payloads.len());
    let folder = tempfile::tempdir().expect("a directory");
    let mut server = Server::on_file(&folder.path().join("rdq.db")).await;
    configure(&server).await;
    let client = Recorded::new(Tasks::new(server.channel()), &History::new());

    let fleet = Fleet::new(&payloads);
    let producing = tokio::spawn(produce(client.clone(), payloads.clone(), random));
    let killed_claims = killed_workers(&client, &server).await;
    for way in [Way::Unary, Way::Follow, Way::Work, Way::Work] {
        fleet.worker(Recorded::clone(&client), way, LEASE);
    }
    // The server dies when a third is delivered, and more is still coming in.
    until("a third is delivered", async || {
        (fleet.counts.delivered.load(Relaxed) > payloads.len() / 3).then_some(())
    })
    .await;
    server.kill();
    server.restart().await;
    producing.await.expect("everything is admitted");
    settled(&client).await;

    // Those that failed for good, or too often, are dead, and nothing else is lost.
    let counts = statuses(&client).await;
    let meant_to_die = payloads.iter().filter(|it| Fate::of(&it.id).is_deadly()).count();
    let dead = counts[&TaskStatus::Dead];
    assert!(dead >= meant_to_die, "{dead} are dead, and {meant_to_die} should be");
    assert_eq!(dead + counts[&TaskStatus::Succeeded], payloads.len(), "{counts:?}");
    redrive_all(&client, &server, dead);
    settled(&client).await;

    let errors = fleet.stop().await;
    let counts = client.judge(&[QUEUE]).await;
    assert_eq!(counts.get(&TaskStatus::Succeeded), Some(&payloads.len()), "{counts:?}");
    let unseen = fleet.never_received();
    assert!(unseen.is_empty(), "succeeded, and no worker saw them: {unseen:?}");
    println!("{}", Report { payloads: &payloads, fleet: &fleet, killed_claims, dead, errors });
    fleet.every_fault_happened();
    Ok(())
}

/// Quick retries, so that the test is quick.
async fn configure(server: &Server) {
    let config = v1::QueueConfig {
        retry: Some(v1::RetryConfig {
            max_attempts: Some(MAX_ATTEMPTS),
            initial_backoff: Some(time::duration(Duration::from_millis(20))),
            multiplier: Some(1.5),
            ..v1::RetryConfig::default()
        }),
        ..v1::QueueConfig::default()
    };
    let request = v1::PutQueueRequest { name: QUEUE.to_owned(), config: Some(config) };
    QueueServiceClient::new(server.channel()).put_queue(request).await.expect("configured");
}

/// Admits everything, one by one and in batches, until it is acknowledged.
async fn produce(client: Recorded, payloads: Arc<Vec<Payload>>, mut random: Random) {
    let mut rest: &[Payload] = &payloads;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(1 + random.below(8)));
        let tasks: Vec<_> = now.iter().map(Payload::task).collect();
        let admitted = match &tasks[..] {
            [task] => client.enqueue(task).await.map(drop),
            tasks => client.enqueue_batch(tasks).await.map(drop),
        };
        if admitted.is_ok() {
            rest = later;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Worker processes that get tasks, and are killed with them.
async fn killed_workers(client: &Recorded, server: &Server) -> usize {
    let mut killed_claims = 0;
    for _ in 0..KILLED_WORKERS {
        let mut child = ChildWorker::start(&Orders {
            job: Job::Claim,
            server: server.url(),
            queue: QUEUE.to_owned(),
            limit: 4,
            lease: LEASE,
        });
        let mut claims = child.claims(1).await;
        child.kill().await;
        claims.extend(child.last_claims().await);
        killed_claims += claims.len();
        client.claimed_elsewhere(claims.iter().map(harness::child::Claimed::grant).collect());
    }
    killed_claims
}

/// Waits until nothing is due, or will be.
async fn settled(client: &Recorded) {
    until("everything has ended", async || {
        let stats = calls::stats(&client.tasks, QUEUE).await.ok()?;
        (stats.pending == 0 && stats.in_flight == 0).then_some(())
    })
    .await;
}

async fn statuses(client: &Recorded) -> std::collections::HashMap<TaskStatus, usize> {
    let mut counts = std::collections::HashMap::new();
    for task in calls::list(&client.tasks, QUEUE).await.expect("listed") {
        *counts.entry(harness::wire::status_of(task.status)).or_default() += 1;
    }
    counts
}

/// Redrives all dead letters, as an operator does.
fn redrive_all(client: &Recorded, server: &Server, dead: usize) {
    // The server let some die by itself, when their leases had ended too often.
    client.maybe_claimed();
    let redriving = client.redriving();
    let output = Command::new(RDQ)
        .args(["dlq", "redrive", QUEUE, "--all", "--yes", "--spread", "1s"])
        .args(["--output", "json", "--server", &server.url()])
        .output()
        .expect("rdq runs");
    assert!(output.status.success(), "{output:?}");
    redriving.returned(Answer::Ok(Outcome::Done));
    let told = String::from_utf8(output.stdout).expect("text");
    assert!(told.contains(&dead.to_string()), "{dead} were dead, and it said: {told}");
}
