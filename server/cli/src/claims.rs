//! `rdq claim`, `complete`, `fail` and `release`: a worker in the shell. It keeps no lease alive
//! and runs no handler.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    values::{self, Source},
    view::{self, TaskView},
};
use bytes::Bytes;
use clap::Args;
use prost::Message as _;
use rdq_proto::v1::{
    Attempt, AttemptError, AttemptOutcome, ClaimDueRequest, ClaimedTask, CompleteRequest,
    FailRequest, HandlerVersionMismatch, ReleaseRequest,
};
use serde::Serialize;
use std::time::Duration;
use tonic::Request;

/// Claim due tasks and print them with their tokens
#[derive(Debug, Args)]
#[command(
    after_help = "A claim ends with `rdq complete`, `rdq fail` or `rdq release`, or when its lease runs out.
Nothing due is exit code 4. With --output json, --follow prints one claim on each line.

Examples:
  rdq claim emails --lease 5m
  rdq claim emails reports --limit 10 --output json
  rdq claim emails --follow --output json |
    jq -r --unbuffered '[.task.id, .claim_token] | @tsv' |
    while read -r id token; do rdq complete \"$id\" \"$token\"; done"
)]
pub(crate) struct ClaimArgs {
    /// The queues, claimed from fairly
    #[arg(required = true, value_name = "QUEUE")]
    queues: Vec<String>,
    /// Claim at most so many at once
    #[arg(long, value_name = "N", default_value_t = 1)]
    limit: i32,
    /// How long to hold each task; if left out, the task's own lease, else the queue's
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    lease: Option<Duration>,
    /// Who claims, as attempts and lists show it
    #[arg(long, value_name = "NAME", default_value_t = worker_id(), hide_default_value = true)]
    worker_id: String,
    /// Stay, and claim tasks as they fall due
    #[arg(long)]
    follow: bool,
    /// With --follow: hold at most so many at once; 100 if left out
    #[arg(long, value_name = "N", requires = "follow")]
    max_in_flight: Option<i32>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Complete a claimed task
#[derive(Debug, Args)]
#[command(
    after_help = "Repeating the command is safe. STALE_CLAIM means that the task has gone to another worker.

Examples:
  rdq complete order-42 AAAAAAAB --result '{\"sent\": true}'"
)]
pub(crate) struct CompleteArgs {
    #[command(flatten)]
    claim: ClaimRef,
    /// What the handler returned: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", value_parser = values::source, allow_hyphen_values = true)]
    result: Option<Source>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Report that an attempt failed; the queue's policy decides what follows
#[derive(Debug, Args)]
#[command(
    after_help = "The task is retried with backoff, or becomes a dead letter: when its attempts are spent, or
when the failure is permanent by --permanent or by the queue's classification of --error-type.

Examples:
  rdq fail order-42 AAAAAAAB --error-type http.503 --message 'mail server is down'
  rdq fail order-42 AAAAAAAB --error-type bad-address --permanent --stack @trace.txt"
)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    claim: ClaimRef,
    /// A stable name of the failure, which classification matches
    #[arg(long, value_name = "TYPE", default_value = "", hide_default_value = true)]
    error_type: String,
    /// What happened, for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// What happened, for programs: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", value_parser = values::source)]
    detail: Option<Source>,
    /// The stack: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", value_parser = values::source)]
    stack: Option<Source>,
    /// It must not run again, whatever the queue's classification says
    #[arg(long, conflicts_with = "retryable")]
    permanent: bool,
    /// It may run again, whatever the queue's classification says
    #[arg(long)]
    retryable: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Give a claim back unspent: no attempt is recorded
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rdq release order-42 AAAAAAAB
  rdq release order-42 AAAAAAAB --delay 10m")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    claim: ClaimRef,
    /// Make the task due again after this, not now
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    delay: Option<Duration>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Which claim.
#[derive(Debug, Args)]
struct ClaimRef {
    /// The task
    id: String,
    /// The token that `rdq claim` printed
    #[arg(value_parser = values::token, allow_hyphen_values = true)]
    token: Bytes,
}

/// Tells shells on one machine apart.
fn worker_id() -> String {
    format!("rdq-cli-{}", std::process::id())
}

/// A claim for programs.
#[derive(Debug, Serialize)]
struct ClaimView {
    task: TaskView,
    claim_token: String,
    generation: i64,
    attempt_no: i32,
    max_attempts: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_remaining: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution_timeout: Option<String>,
    version_mismatch: String,
}

impl ClaimView {
    fn decode(claim: &ClaimedTask) -> Result<Self, CliError> {
        let mismatch = HandlerVersionMismatch::try_from(claim.version_mismatch);
        Ok(Self {
            task: TaskView::decode(&claim.task)?,
            claim_token: values::token_text(&claim.claim_token),
            generation: claim.generation,
            attempt_no: claim.attempt_no,
            max_attempts: claim.max_attempts,
            lease_remaining: view::span(claim.lease_remaining),
            execution_timeout: view::span(claim.execution_timeout),
            version_mismatch: view::short(
                mismatch.map(|mismatch| mismatch.as_str_name()).ok(),
                "HANDLER_VERSION_MISMATCH_",
                claim.version_mismatch,
            ),
        })
    }

    const HEADS: [&str; 6] = ["ID", "TOKEN", "HANDLER", "ATTEMPT", "LEASE LEFT", "PAYLOAD"];

    fn row(&self) -> [String; 6] {
        let [id, _, handler, ..] = self.task.row();
        [
            id,
            self.claim_token.clone(),
            handler,
            // Not `attempt_no`, which a redrive does not bring back to 1: "3 of 2" tells nobody
            // how many are left.
            format!("{} of {}", self.task.attempt_count() + 1, self.max_attempts),
            self.lease_remaining.clone().unwrap_or_else(|| "-".into()),
            self.task.payload_cell(),
        ]
    }
}

/// Runs `rdq claim`.
pub(crate) async fn claim(args: ClaimArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let message = ClaimDueRequest {
        queues: args.queues,
        limit: Some(args.limit),
        lease: args.lease.map(values::wire),
        worker_id: args.worker_id,
        follow: args.follow,
        max_in_flight: args.max_in_flight,
    };
    // A subscription lasts as long as its reader.
    let request = if args.follow { Request::new(message) } else { client.request(message) };
    let mut stream = client.tasks().claim_due(request).await?.into_inner();
    let mut claims = Vec::new();
    while let Some(response) = stream.message().await? {
        for claim in &response.tasks {
            claims.push(ClaimView::decode(claim)?);
        }
        if args.follow && !claims.is_empty() {
            print_followed(client.format, &claims)?;
            claims.clear();
        }
    }
    if args.follow {
        return Err(CliError::Cut("the subscription"));
    }
    match client.format {
        Format::Json => output::json_under("tasks", &claims)?,
        Format::Table if claims.is_empty() => eprintln!("Nothing is due."),
        Format::Table => {
            output::text(&output::table(ClaimView::HEADS, claims.iter().map(ClaimView::row)))?;
        }
    }
    Ok(if claims.is_empty() { Outcome::Nothing } else { Outcome::Done })
}

fn print_followed(format: Format, claims: &[ClaimView]) -> Result<(), CliError> {
    for claim in claims {
        match format {
            Format::Json => output::json(claim)?,
            Format::Table => output::text(&claim.row().join("  "))?,
        }
    }
    Ok(())
}

/// Runs `rdq complete`.
pub(crate) async fn complete(args: CompleteArgs) -> Result<Outcome, CliError> {
    let result = args.result.as_ref().map(Source::read).transpose()?.unwrap_or_default();
    let client = Client::connect(&args.client).await?;
    let request = client.request(CompleteRequest {
        id: args.claim.id.clone(),
        claim_token: args.claim.token,
        result,
        ..CompleteRequest::default()
    });
    let replayed = client.tasks().complete(request).await?.into_inner().replayed;
    Resolved { id: args.claim.id, status: "SUCCEEDED".into(), next_attempt_at: None, replayed }
        .print(client.format)
}

/// Runs `rdq fail`.
pub(crate) async fn fail(args: FailArgs) -> Result<Outcome, CliError> {
    let error = AttemptError {
        r#type: args.error_type,
        message: args.message,
        detail: args.detail.as_ref().map(Source::read_text).transpose()?.unwrap_or_default(),
        stack: args.stack.as_ref().map(Source::read_text).transpose()?.unwrap_or_default(),
    };
    let outcome = match (args.permanent, args.retryable) {
        (true, _) => AttemptOutcome::PermanentFailure,
        (_, true) => AttemptOutcome::RetryableFailure,
        _ => AttemptOutcome::Unspecified,
    };
    let attempt = Attempt {
        outcome: outcome.into(),
        error: error.encode_to_vec().into(),
        ..Attempt::default()
    };
    let client = Client::connect(&args.client).await?;
    let request = client.request(FailRequest {
        id: args.claim.id.clone(),
        claim_token: args.claim.token,
        attempt: attempt.encode_to_vec().into(),
    });
    let answer = client.tasks().fail(request).await?.into_inner();
    Resolved {
        id: args.claim.id,
        status: view::status(answer.status),
        next_attempt_at: answer.next_attempt_at.map(|at| at.to_string()),
        replayed: answer.replayed,
    }
    .print(client.format)
}

/// Runs `rdq release`.
pub(crate) async fn release(args: ReleaseArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let request = client.request(ReleaseRequest {
        id: args.claim.id.clone(),
        claim_token: args.claim.token,
        delay: args.delay.map(values::wire),
    });
    let answer = client.tasks().release(request).await?.into_inner();
    Resolved {
        id: args.claim.id,
        status: "PENDING".into(),
        next_attempt_at: answer.next_attempt_at.map(|at| at.to_string()),
        replayed: answer.replayed,
    }
    .print(client.format)
}

/// How a claim ended.
#[derive(Debug, Serialize)]
struct Resolved {
    id: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<String>,
    replayed: bool,
}

impl Resolved {
    fn print(&self, format: Format) -> Result<Outcome, CliError> {
        if format == Format::Json {
            output::json(self)?;
            return Ok(Outcome::Done);
        }
        let next = self.next_attempt_at.as_ref().map(|at| format!(", due {at}"));
        let replayed = if self.replayed { " (done before)" } else { "" };
        output::text(&format!(
            "{} {}{}{replayed}",
            self.id,
            self.status,
            next.unwrap_or_default()
        ))?;
        Ok(Outcome::Done)
    }
}
