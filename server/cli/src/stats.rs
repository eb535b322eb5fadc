//! `rdq stats` and `rdq watch`: how many tasks are where, once or again and again.

use crate::{
    connect::{Client, ClientArgs},
    errors::{self, CliError, Outcome},
    output::{self, Format},
    values, view,
};
use clap::Args;
use rdq_proto::v1::{QueueStats, StatsRequest};
use serde::Serialize;
use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};
use tokio::time::MissedTickBehavior;

/// Count the tasks of queues
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rdq stats
  rdq stats emails reports
  rdq stats --output json | jq '[.queues[].dlq_depth] | add'")]
pub(crate) struct StatsArgs {
    /// The queues; all if none
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Count the tasks of queues again and again
#[derive(Debug, Args)]
#[command(
    after_help = "On a terminal the table is refreshed in place; else each one follows the one before. An outage is
shown, and waited out.

Examples:
  rdq watch
  rdq watch emails --interval 5s --output json >> emails.ndjson"
)]
pub(crate) struct WatchArgs {
    /// The queues; all if none
    #[arg(value_name = "QUEUE")]
    queues: Vec<String>,
    /// How often
    #[arg(long, value_name = "DURATION", value_parser = values::duration, default_value = "1s")]
    interval: Duration,
    /// Stop after so many; never if left out
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// No faster than this, whatever is asked: counting costs the server something.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The counts of a queue for programs.
#[derive(Debug, Serialize)]
struct StatsView {
    queue: String,
    pending: i64,
    ready: i64,
    delayed: i64,
    in_flight: i64,
    lapsed: i64,
    dlq_depth: i64,
    succeeded: i64,
    cancelled: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_pending_age: Option<String>,
}

impl From<QueueStats> for StatsView {
    fn from(stats: QueueStats) -> Self {
        Self {
            queue: stats.queue,
            pending: stats.pending,
            ready: stats.ready,
            delayed: stats.delayed,
            in_flight: stats.in_flight,
            lapsed: stats.lapsed,
            dlq_depth: stats.dlq_depth,
            succeeded: stats.succeeded,
            cancelled: stats.cancelled,
            oldest_pending_age: view::span(stats.oldest_pending_age),
        }
    }
}

const HEADS: [&str; 9] = [
    "QUEUE",
    "READY",
    "DELAYED",
    "IN FLIGHT",
    "LAPSED",
    "DEAD",
    "SUCCEEDED",
    "CANCELLED",
    "OLDEST READY",
];

impl StatsView {
    fn row(&self) -> [String; 9] {
        [
            output::cell(&self.queue),
            self.ready.to_string(),
            self.delayed.to_string(),
            self.in_flight.to_string(),
            self.lapsed.to_string(),
            self.dlq_depth.to_string(),
            self.succeeded.to_string(),
            self.cancelled.to_string(),
            self.oldest_pending_age.clone().unwrap_or_else(|| "-".into()),
        ]
    }
}

/// Runs `rdq stats`.
pub(crate) async fn stats(args: StatsArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let queues = read(&client, &args.queues).await?;
    print(client.format, &queues)?;
    Ok(Outcome::Done)
}

/// Runs `rdq watch`.
pub(crate) async fn watch(args: WatchArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let is_screen = client.format == Format::Table && io::stdout().is_terminal();
    let mut ticks = tokio::time::interval(args.interval.max(INTERVAL_MIN));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shown = 0;
    while args.count.is_none_or(|count| shown < count) {
        ticks.tick().await;
        match read(&client, &args.queues).await {
            Ok(queues) => {
                if is_screen {
                    output::clear_screen()?;
                } else if client.format == Format::Table && shown > 0 {
                    output::text("")?;
                }
                print(client.format, &queues)?;
                shown += 1;
            }
            // A refusal stays one; an outage passes, and people watch for just that.
            Err(error) if shown > 0 && errors::is_outage(&error) => eprintln!("{error}"),
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome::Done)
}

async fn read(client: &Client, queues: &[String]) -> Result<Vec<StatsView>, CliError> {
    let request =
        client.request(StatsRequest { queues: queues.to_vec(), ..StatsRequest::default() });
    let answer = client.tasks().stats(request).await?.into_inner();
    Ok(answer.queues.into_iter().map(StatsView::from).collect())
}

fn print(format: Format, queues: &[StatsView]) -> io::Result<()> {
    match format {
        Format::Json => output::json_under("queues", &queues),
        Format::Table => output::text(&output::table(HEADS, queues.iter().map(StatsView::row))),
    }
}
