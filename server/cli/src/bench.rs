//! `rdq bench`: measures any server from outside, on queues of its own. What it is compared with,
//! the bare echo and the bare database, is measured by `compliance/benches`.

mod load; // start here
mod unary;
mod lives;
mod pickup;
mod events;
mod notify;
mod place;

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    values,
};
use clap::Args;
use load::Measured;
use place::Place;
use rdq_proto::v1::{Durability, GetCapabilitiesRequest};
use serde::Serialize;
use std::time::Duration;

/// Measure a server: tasks one by one and whole lives, pick-up, events, notifications
#[derive(Debug, Args)]
#[command(
    after_help = "What is measured, each on queues and streams of its own that are removed at the end:
  enqueue         concurrent callers of Enqueue, one task a call
  claim_complete  concurrent callers of ClaimDue and Complete, one task a call
  lives           whole lives through EnqueueBatch and Work streams
  pick_up         from before Enqueue to the receipt on a waiting Work stream, queue idle
  publish         events, 500 in one Commit
  read            the same events, in pages of 1,000
  notify          from before Notify to the wake of a waiting listener, server idle

What the server's storage does not offer is left out, unless it is asked for by --only.

Examples:
  rdq bench
  rdq bench --only lives --tasks 1000000 --output json
  rdq bench --server http://db7:7420 --payload-bytes 4096 --retention 24h"
)]
pub(crate) struct BenchArgs {
    /// Whole lives to measure
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u64).range(1..))]
    tasks: u64,
    /// Tasks to measure one call at a time
    #[arg(long, value_name = "N", default_value = "30000", value_parser = clap::value_parser!(u64).range(1..))]
    unary_tasks: u64,
    /// Pick-ups to measure
    #[arg(long, value_name = "N", default_value = "500", value_parser = clap::value_parser!(u64).range(1..))]
    pick_ups: u64,
    /// Events to publish and read; whole commits are made of them
    #[arg(long, value_name = "N", default_value = "200000", value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Notifications to measure
    #[arg(long, value_name = "N", default_value = "500", value_parser = clap::value_parser!(u64).range(1..))]
    notifications: u64,
    /// The size of each payload
    #[arg(long, value_name = "BYTES", default_value = "100")]
    payload_bytes: usize,
    /// Concurrent callers of one call at a time
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    callers: u32,
    /// Connections that callers and streams share
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// How long the queues keep what succeeded; by default nothing, as the bare loop keeps nothing
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "0s")]
    retention: Duration,
    /// Measure this alone; may be repeated
    #[arg(long, value_enum, value_name = "WHAT")]
    only: Vec<Part>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Part {
    Enqueue,
    ClaimComplete,
    Lives,
    PickUp,
    Publish,
    Read,
    Notify,
}

impl Part {
    /// The capability without which it cannot be measured.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Enqueue | Self::ClaimComplete | Self::Lives | Self::PickUp => &[],
            Self::Publish | Self::Read => &["streams", "transactions"],
            Self::Notify => &["signals"],
        }
    }
}

/// All that was measured.
#[derive(Debug, Serialize)]
struct Report {
    server: String,
    server_version: String,
    durability: String,
    payload_bytes: usize,
    callers: u32,
    connections: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    enqueue: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim_complete: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lives: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pick_up: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    publish: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<Measured>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notify: Option<Measured>,
}

/// Runs `rdq bench`.
pub(crate) async fn bench(args: BenchArgs) -> Result<Outcome, CliError> {
    let mut clients = Vec::new();
    for _ in 0..args.connections {
        clients.push(Client::connect(&args.client).await?);
    }
    let place = Place::new(clients, &args);
    // The queues go whatever happened on them.
    let report = measure(&args, &place).await;
    let leftovers = place.clean_up().await;
    let report = report?;
    for name in leftovers {
        eprintln!(
            "{name} still holds something: remove it with `rdq cancel`, `rdq dlq purge` and `rdq stream trim`."
        );
    }
    match args.client.output {
        Format::Json => output::json(&report)?,
        Format::Table => output::text(&report.table())?,
    }
    Ok(Outcome::Done)
}

async fn measure(args: &BenchArgs, place: &Place) -> Result<Report, CliError> {
    let client = place.client(0);
    let request = client.request(GetCapabilitiesRequest {});
    let server = client.tasks().get_capabilities(request).await?.into_inner();
    let durability = Durability::try_from(server.durability).unwrap_or_default().as_str_name();
    let mut report = Report {
        server: args.client.server.clone(),
        server_version: server.server_version,
        durability: durability.trim_start_matches("DURABILITY_").to_owned(),
        payload_bytes: args.payload_bytes,
        callers: args.callers,
        connections: args.connections,
        enqueue: None,
        claim_complete: None,
        lives: None,
        pick_up: None,
        publish: None,
        read: None,
        notify: None,
    };
    let has = |capability: &&str| server.capabilities.iter().any(|it| it == capability);
    let wants = |part: Part| {
        let all = args.only.is_empty() && part.needs().iter().all(has);
        all || args.only.contains(&part)
    };
    // Claims need the tasks that enqueueing leaves.
    if wants(Part::Enqueue) || wants(Part::ClaimComplete) {
        let queue = place.queue("unary").await?;
        let enqueued = unary::enqueue(place, &queue, args.unary_tasks).await?;
        report.enqueue = wants(Part::Enqueue).then_some(enqueued);
        if wants(Part::ClaimComplete) {
            report.claim_complete =
                Some(unary::claim_and_complete(place, &queue, args.unary_tasks).await?);
        }
    }
    if wants(Part::Lives) {
        let queue = place.queue("lives").await?;
        report.lives = Some(lives::measure(place, &queue, args.tasks).await?);
    }
    if wants(Part::PickUp) {
        let queue = place.queue("pick-up").await?;
        report.pick_up = Some(pickup::measure(place, &queue, args.pick_ups).await?);
    }
    // Reads need the events that publishing leaves.
    if wants(Part::Publish) || wants(Part::Read) {
        let stream = place.stream("events");
        let published = events::publish(place, &stream, args.events).await?;
        report.publish = wants(Part::Publish).then_some(published);
        if wants(Part::Read) {
            report.read = Some(events::read(place, &stream).await?);
        }
    }
    if wants(Part::Notify) {
        report.notify = Some(notify::measure(place, args.notifications).await?);
    }
    Ok(report)
}

impl Report {
    fn table(&self) -> String {
        let parts = [
            ("enqueue", "calls", &self.enqueue),
            ("claim + complete", "calls", &self.claim_complete),
            ("EnqueueBatch + Work", "lives", &self.lives),
            ("pick-up, idle", "tasks", &self.pick_up),
            ("publish", "events", &self.publish),
            ("read", "events", &self.read),
            ("notify, idle", "wakes", &self.notify),
        ];
        let rows = parts.into_iter().filter_map(|(name, unit, measured)| {
            let measured = measured.as_ref()?;
            let micros =
                |micros: Option<u32>| micros.map_or_else(|| "-".into(), |us| us.to_string());
            let rate = measured.per_second;
            Some([
                name.to_owned(),
                measured.count.to_string(),
                rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0} {unit}/s")),
                micros(measured.p50_us),
                micros(measured.p99_us),
            ])
        });
        let table = output::table(["WHAT", "COUNT", "RATE", "P50 US", "P99 US"], rows);
        format!(
            "{} (rdq {}, survives: {}), {} bytes, {} callers, {} connections\n\n{table}",
            self.server,
            self.server_version,
            self.durability,
            self.payload_bytes,
            self.callers,
            self.connections,
        )
    }
}
