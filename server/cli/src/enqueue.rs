//! `rdq enqueue`: one task from arguments, or one from each line of standard input.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    values::{self, Source},
    view,
};
use bytes::Bytes;
use clap::Args;
use prost::Message as _;
use rdq_proto::v1::{
    EnqueueBatchRequest, EnqueueRequest, ItemError, Task, TaskStatus,
    enqueue_result::Outcome as Enqueued,
};
use serde_json::json;
use std::{
    io::{self, BufRead as _},
    time::Duration,
};

/// Lines travel in batches of so many tasks or bytes. The contract allows 1,000 and 8 MiB; half of
/// that leaves room for the envelope of each.
const BATCH_TASKS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Enqueue a task, or one for each line of standard input
#[derive(Debug, Args)]
#[command(
    after_help = "The payload is the argument itself, @FILE for a file's content, or - for standard input.
Choose the id yourself to repeat the command safely: the first admission wins.

Examples:
  rdq enqueue emails send --payload '{\"to\": \"a@example.org\"}'
  rdq enqueue images resize --payload @photo.jpg --content-type image/jpeg --id photo-7
  rdq enqueue reports build --delay 10m --priority 5 --header tenant=acme
  rdq enqueue emails send --lines --id-prefix import-1- < messages.ndjson"
)]
pub(crate) struct EnqueueArgs {
    /// The queue
    queue: String,
    /// The handler that runs the task
    handler: String,
    /// The payload: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", value_parser = values::source, allow_hyphen_values = true)]
    payload: Option<Source>,
    /// The task's id; made by the server if left out
    #[arg(long)]
    id: Option<String>,
    /// Make the task due after this
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    delay: Option<Duration>,
    /// Higher goes first
    #[arg(long, value_name = "N", default_value_t = 0, allow_hyphen_values = true)]
    priority: i32,
    /// A header for the handler; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = values::key_value)]
    headers: Vec<(String, String)>,
    /// What the payload is
    #[arg(long, value_name = "TYPE", default_value = "", hide_default_value = true)]
    content_type: String,
    /// The handler's version that the task means
    #[arg(long, value_name = "VERSION")]
    handler_version: Option<String>,
    /// Attempts before the task is dead, in place of the queue's
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// How long a worker holds the task, in place of the queue's
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    lease: Option<Duration>,
    /// Make the task a dead letter if it has not finished after this
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    expires_in: Option<Duration>,
    /// Make one task of each line of standard input, in batches
    #[arg(long, conflicts_with_all = ["payload", "id"])]
    lines: bool,
    /// With --lines: make ids of this and the line's number, so that the command can be repeated
    #[arg(long, value_name = "PREFIX", requires = "lines")]
    id_prefix: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

impl EnqueueArgs {
    fn task(&self, id: String, payload: Bytes) -> Task {
        Task {
            id,
            queue: self.queue.clone(),
            handler_ref: self.handler.clone(),
            handler_version: self.handler_version.clone(),
            payload,
            payload_content_type: self.content_type.clone(),
            headers: self.headers.iter().cloned().collect(),
            priority: self.priority,
            max_attempts: self.max_attempts,
            lease: self.lease.map(values::wire),
            delay: self.delay.map(values::wire),
            expires_in: self.expires_in.map(values::wire),
            ..Task::default()
        }
    }
}

/// Runs `rdq enqueue`.
pub(crate) async fn enqueue(args: EnqueueArgs) -> Result<Outcome, CliError> {
    if args.lines { enqueue_lines(args).await } else { enqueue_one(args).await }
}

async fn enqueue_one(args: EnqueueArgs) -> Result<Outcome, CliError> {
    let payload = args.payload.as_ref().map(Source::read).transpose()?.unwrap_or_default();
    let task = args.task(args.id.clone().unwrap_or_default(), payload);
    let client = Client::connect(&args.client).await?;
    let request = client.request(EnqueueRequest { task: task.encode_to_vec().into() });
    let answer = client.tasks().enqueue(request).await?.into_inner();
    match client.format {
        Format::Table if answer.created => output::text(&answer.id)?,
        Format::Table => {
            output::text(&answer.id)?;
            eprintln!("It was there already: {}.", view::status(answer.status));
            if matches!(answer.status(), TaskStatus::Succeeded | TaskStatus::Cancelled) {
                eprintln!("It is not run again, and keeps its id until its retention ends.");
            }
        }
        Format::Json => output::json(&json!({
            "id": answer.id,
            "created": answer.created,
            "status": view::status(answer.status),
        }))?,
    }
    Ok(Outcome::Done)
}

async fn enqueue_lines(args: EnqueueArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let progress = output::progress("enqueueing lines", None);
    let mut import = Import::default();
    let mut batch = Vec::new();
    let mut batch_bytes = 0;
    let mut line_no = 0_u64;
    loop {
        let line = read_line().map_err(|error| import.report(error.into()))?;
        let is_end = line.is_none();
        if let Some(line) = line {
            line_no += 1;
            let id = args.id_prefix.as_ref().map(|prefix| format!("{prefix}{line_no}"));
            let task = Bytes::from(args.task(id.unwrap_or_default(), line).encode_to_vec());
            batch_bytes += task.len();
            batch.push(task);
        }
        let is_full = batch.len() >= BATCH_TASKS_MAX || batch_bytes >= BATCH_BYTES_MAX;
        if !batch.is_empty() && (is_full || is_end) {
            import.send(&client, std::mem::take(&mut batch)).await?;
            progress.set_position(import.sent);
            batch_bytes = 0;
        }
        if is_end {
            break;
        }
    }
    progress.finish_and_clear();
    import.print(client.format)
}

/// One line without its end; `None` at the end of the input.
fn read_line() -> io::Result<Option<Bytes>> {
    let mut line = Vec::new();
    if io::stdin().lock().read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(Some(line.into()))
}

/// What became of the lines so far.
#[derive(Debug, Default)]
struct Import {
    sent: u64,
    created: u64,
    existing: u64,
    refused: u64,
}

impl Import {
    async fn send(&mut self, client: &Client, tasks: Vec<Bytes>) -> Result<(), CliError> {
        let expected = tasks.len();
        let request = client.request(EnqueueBatchRequest { tasks });
        let answer = client.tasks().enqueue_batch(request).await;
        let results = answer.map_err(|status| self.report(status.into()))?.into_inner().results;
        if results.len() != expected {
            let message = format!("{expected} tasks were sent, {} answered", results.len());
            return Err(CliError::Malformed(message));
        }
        for result in results {
            self.sent += 1;
            match result.outcome {
                Some(Enqueued::Enqueued(answer)) if answer.created => self.created += 1,
                Some(Enqueued::Enqueued(_)) => self.existing += 1,
                Some(Enqueued::Error(error)) => {
                    self.refused += 1;
                    eprintln!("line {}: {}", self.sent, item_error(&error));
                }
                None => return Err(CliError::Malformed("a result has no outcome".into())),
            }
        }
        Ok(())
    }

    /// Tells how far it came before an error.
    fn report(&self, error: CliError) -> CliError {
        eprintln!("Stopped after line {}: what was sent up to there is answered.", self.sent);
        error
    }

    fn print(&self, format: Format) -> Result<Outcome, CliError> {
        let Self { sent, created, existing, refused } = self;
        match format {
            Format::Table => output::text(&format!(
                "{sent} lines: {created} enqueued, {existing} there already, {refused} refused"
            ))?,
            Format::Json => output::json(&json!({
                "lines": sent, "created": created, "existing": existing, "refused": refused,
            }))?,
        }
        Ok(match (*sent, *refused) {
            (0, _) => Outcome::Nothing,
            (_, 0) => Outcome::Done,
            _ => Outcome::Refused,
        })
    }
}

/// Why one item of a batch was refused, on one line.
fn item_error(error: &ItemError) -> String {
    format!("{}: {}", view::reason(error.reason), error.message)
}
