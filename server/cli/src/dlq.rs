//! `rdq dlq`: dead letters, listed, redriven and purged. What matches is the server's to say.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    tasks::{Pages, Paging},
    values,
    view::TaskView,
};
use clap::{Args, Subcommand};
use prost_types::Timestamp;
use rdq_proto::v1::{
    DlqFilter, DlqListRequest, PurgeRequest, RedriveRequest, Selector, TaskIds, selector::Selection,
};
use serde_json::json;
use std::time::Duration;
use tonic::Request;

/// List, redrive and purge dead letters
#[derive(Debug, Args)]
pub(crate) struct DlqArgs {
    #[command(subcommand)]
    command: DlqCommand,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum DlqCommand {
    List(ListArgs),
    Redrive(RedriveArgs),
    Purge(PurgeArgs),
}

/// List dead letters, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rdq dlq list emails
  rdq dlq list emails --error-type http.503 --from 2026-01-31T12:00:00Z
  rdq dlq list emails --attempts --output json | jq '.tasks[].attempts[-1].error'")]
struct ListArgs {
    /// The queue
    queue: String,
    /// The queue is an outbox, and its dead letters are messages
    #[arg(long)]
    outbox: bool,
    #[command(flatten)]
    filter: Filter,
    /// Also read the whole histories, with stacks; shown with --output json
    #[arg(long)]
    attempts: bool,
    #[command(flatten)]
    paging: Paging,
}

/// Make dead letters pending again
#[derive(Debug, Args)]
#[command(override_usage = "rdq dlq redrive [OPTIONS] <QUEUE> <--id <ID>|FILTER|--all>")]
#[command(
    after_help = "Attempts count from 0 again; the history is kept. --all asks first on a terminal.

Examples:
  rdq dlq redrive emails --id order-42 --id order-43
  rdq dlq redrive emails --error-type http.503 --dry-run
  rdq dlq redrive emails --all --spread 5m --yes"
)]
struct RedriveArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Spread the due times evenly over this, against a thundering herd
    #[arg(long, value_name = "DURATION", value_parser = values::duration, conflicts_with = "rate")]
    spread: Option<Duration>,
    /// Make so many due in a second
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
}

/// Remove dead letters for good
#[derive(Debug, Args)]
#[command(override_usage = "rdq dlq purge [OPTIONS] <QUEUE> <--id <ID>|FILTER|--all>")]
#[command(after_help = "Nothing brings them back. --all asks first on a terminal.

Examples:
  rdq dlq purge emails --handler old-handler --dry-run
  rdq dlq purge emails --to 2026-01-01T00:00:00Z
  rdq dlq purge emails --all --yes")]
struct PurgeArgs {
    #[command(flatten)]
    selection: SelectionArgs,
}

/// What to act on: ids, or a filter, or all.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools, reason = "flags of a command")]
#[group(skip)]
#[command(group = clap::ArgGroup::new("selection").required(true).multiple(true)
    .args(["ids", "error_type", "handler", "from", "to", "all"]))]
struct SelectionArgs {
    /// The queue
    queue: String,
    /// The queue is an outbox, and its dead letters are messages
    #[arg(long)]
    outbox: bool,
    /// This dead letter; may be repeated
    #[arg(long = "id", value_name = "ID", conflicts_with_all = FILTERS)]
    ids: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Every dead letter of the queue
    #[arg(long, conflicts_with_all = FILTERS, conflicts_with = "ids")]
    all: bool,
    /// Count only, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

const FILTERS: [&str; 4] = ["error_type", "handler", "from", "to"];

/// Which dead letters; what is given must hold, all of it.
#[derive(Debug, Args)]
#[group(skip)]
struct Filter {
    /// Only those whose final attempt failed with exactly this type
    #[arg(long, value_name = "TYPE")]
    error_type: Option<String>,
    /// Only those of exactly this handler
    #[arg(long)]
    handler: Option<String>,
    /// Only those that died at or after this instant
    #[arg(long, value_name = "RFC3339", value_parser = values::instant)]
    from: Option<Timestamp>,
    /// Only those that died before this instant
    #[arg(long, value_name = "RFC3339", value_parser = values::instant)]
    to: Option<Timestamp>,
}

impl Filter {
    fn wire(&self) -> DlqFilter {
        DlqFilter {
            error_type: self.error_type.clone(),
            handler_ref: self.handler.clone(),
            dead_lettered_from: self.from,
            dead_lettered_to: self.to,
        }
    }
}

impl SelectionArgs {
    fn selector(&self) -> Selector {
        let selection = if self.all {
            Selection::All(true)
        } else if self.ids.is_empty() {
            Selection::Filter(self.filter.wire())
        } else {
            Selection::Ids(TaskIds { ids: self.ids.clone() })
        };
        Selector { selection: Some(selection) }
    }
}

/// Runs `rdq dlq`.
pub(crate) async fn dlq(args: DlqArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    match args.command {
        DlqCommand::List(args) => list(args, &client).await,
        DlqCommand::Redrive(args) => {
            Step { verb: "Redrive", done: "redriven", selection: &args.selection, client: &client }
                .run(&Call::Redrive { spread: args.spread, rate: args.rate })
                .await
        }
        DlqCommand::Purge(args) => {
            Step { verb: "Purge", done: "purged", selection: &args.selection, client: &client }
                .run(&Call::Purge)
                .await
        }
    }
}

async fn list(args: ListArgs, client: &Client) -> Result<Outcome, CliError> {
    let mut service = client.tasks();
    let mut pages = Pages::new(&args.paging);
    while let Some(page_size) = pages.next_size() {
        let (queue, outbox) = place(&args.queue, args.outbox);
        let request = DlqListRequest {
            queue,
            outbox,
            filter: Some(args.filter.wire()),
            page_size: Some(page_size),
            page_token: pages.token.clone(),
            include_attempts: args.attempts,
        };
        let page = service.dlq_list(client.request(request)).await?.into_inner();
        pages.add(&page.tasks, page.next_page_token)?;
    }
    pages.print(client.format, TaskView::DEAD_HEADS, TaskView::dead_row)
}

/// The queue, or the outbox in its place.
fn place(name: &str, is_outbox: bool) -> (String, Option<String>) {
    if is_outbox { (String::new(), Some(name.to_owned())) } else { (name.to_owned(), None) }
}

/// What happens to the selected dead letters.
enum Call {
    Redrive { spread: Option<Duration>, rate: Option<f64> },
    Purge,
}

/// One action on a selection, from the question to the count.
struct Step<'a> {
    verb: &'static str,
    done: &'static str,
    selection: &'a SelectionArgs,
    client: &'a Client,
}

impl Step<'_> {
    async fn run(&self, call: &Call) -> Result<Outcome, CliError> {
        let selection = self.selection;
        let mut total = None;
        if selection.all && !selection.dry_run && !selection.yes && output::is_interactive() {
            let count = self.count(call, true, None).await?;
            let queue = &selection.queue;
            let letters = output::count(count, "dead letter");
            let question = format!("{} all {letters} of queue {queue:?}?", self.verb);
            if count > 0 && !output::confirm(&question)? {
                return Ok(Outcome::Nothing);
            }
            total = u64::try_from(count).ok();
        }
        let count = self.count(call, selection.dry_run, total).await?;
        self.print(count)
    }

    /// Follows the running count to its end. It has no deadline: a large selection takes its time.
    async fn count(&self, call: &Call, dry_run: bool, total: Option<u64>) -> Result<i64, CliError> {
        let (queue, outbox) = place(&self.selection.queue, self.selection.outbox);
        let selector = Some(self.selection.selector());
        let mut service = self.client.tasks();
        let mut count = Running::new(if dry_run { "counted" } else { self.done }, total);
        match call {
            Call::Redrive { spread, rate } => {
                let request = RedriveRequest {
                    queue,
                    outbox,
                    selector,
                    dry_run,
                    spread_over: spread.map(values::wire),
                    rate_per_second: *rate,
                };
                let mut stream = service.redrive(Request::new(request)).await?.into_inner();
                while let Some(answer) = count.check(stream.message().await)? {
                    count.advance(answer.count, answer.done);
                }
            }
            Call::Purge => {
                let request = PurgeRequest { queue, outbox, selector, dry_run };
                let mut stream = service.purge(Request::new(request)).await?.into_inner();
                while let Some(answer) = count.check(stream.message().await)? {
                    count.advance(answer.count, answer.done);
                }
            }
        }
        count.finish()
    }

    fn print(&self, count: i64) -> Result<Outcome, CliError> {
        let dry_run = self.selection.dry_run;
        match self.client.format {
            Format::Json => output::json(&json!({ "count": count, "dry_run": dry_run }))?,
            Format::Table => {
                let would = if dry_run { " would be" } else { "" };
                let letters = output::count(count, "dead letter");
                output::text(&format!("{letters}{would} {}", self.done))?;
            }
        }
        Ok(if count == 0 { Outcome::Nothing } else { Outcome::Done })
    }
}

/// The running count of a stream, and its progress bar.
struct Running {
    what: &'static str,
    bar: indicatif::ProgressBar,
    count: i64,
    is_done: bool,
}

impl Running {
    fn new(what: &'static str, total: Option<u64>) -> Self {
        Self { what, bar: output::progress(what, total), count: 0, is_done: false }
    }

    fn advance(&mut self, count: i64, done: bool) {
        self.count = count;
        self.is_done = done;
        self.bar.set_position(u64::try_from(count).unwrap_or(0));
    }

    /// Passes a message on; of an error, tells what was done before it.
    fn check<T>(&self, message: Result<T, tonic::Status>) -> Result<T, CliError> {
        message.map_err(|status| {
            self.bar.finish_and_clear();
            if self.count > 0 {
                eprintln!("{} {} before the error.", self.count, self.what);
            }
            status.into()
        })
    }

    fn finish(self) -> Result<i64, CliError> {
        self.bar.finish_and_clear();
        if self.is_done { Ok(self.count) } else { Err(CliError::Cut("the running count")) }
    }
}
