//! `rdq lock`: named locks, taken, kept, given back and looked at.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    values, view,
};
use clap::{Args, Subcommand};
use rdq_proto::v1::{GetLockRequest, LockServiceReleaseRequest, RenewRequest, TryLockRequest};
use serde::Serialize;
use serde_json::json;
use std::time::Duration;

/// Take, keep and release named locks
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    #[command(subcommand)]
    command: LockCommand,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum LockCommand {
    Try(TryArgs),
    Renew(RenewArgs),
    Release(ReleaseArgs),
    /// Show who holds a lock
    Get {
        /// The lock
        name: String,
    },
}

/// Acquire a lock that nobody holds
#[derive(Debug, Args)]
#[command(
    after_help = "A lock that somebody else holds is exit code 4. The holder itself gets the hold that it has.

Examples:
  rdq lock try nightly-report --owner \"$(hostname)\" --ttl 5m && ./report
  rdq lock try deploy --owner ci-42 --ttl 10m --output json | jq .generation"
)]
struct TryArgs {
    /// The lock
    name: String,
    /// Who wants it; two who share an owner share the lock
    #[arg(long)]
    owner: String,
    /// For how long
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    ttl: Duration,
}

/// Move the end of a hold to so long from now
#[derive(Debug, Args)]
#[command(after_help = "A hold that is over is exit code 4: stop what it guarded.

Examples:
  rdq lock renew deploy --owner ci-42 --ttl 10m")]
struct RenewArgs {
    #[command(flatten)]
    hold: HoldArgs,
    /// For how long from now
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    ttl: Duration,
}

/// End a hold
#[derive(Debug, Args)]
#[command(after_help = "A hold that was over is exit code 4.

Examples:
  rdq lock release deploy --owner ci-42")]
struct ReleaseArgs {
    #[command(flatten)]
    hold: HoldArgs,
}

/// Which hold.
#[derive(Debug, Args)]
struct HoldArgs {
    /// The lock
    name: String,
    /// Who holds it
    #[arg(long)]
    owner: String,
    /// Only the hold with this fencing number
    #[arg(long, value_name = "N")]
    generation: Option<i64>,
}

/// A hold for programs.
#[derive(Debug, Serialize)]
struct HoldView {
    owner: String,
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<String>,
}

/// Runs `rdq lock`.
pub(crate) async fn lock(args: LockArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let mut service = client.locks();
    match args.command {
        LockCommand::Try(TryArgs { name, owner, ttl }) => {
            let ttl = Some(values::wire(ttl));
            let request = TryLockRequest { name: name.clone(), owner: owner.clone(), ttl };
            let answer = service.try_lock(client.request(request)).await?.into_inner();
            let hold = answer.acquired.then(|| HoldView {
                owner,
                generation: answer.generation,
                expires_at: answer.expires_at.map(|at| at.to_string()),
                remaining: view::span(answer.remaining),
            });
            print(client.format, "acquired", &name, hold.as_ref(), "is held by somebody else")
        }
        LockCommand::Renew(RenewArgs { hold: HoldArgs { name, owner, generation }, ttl }) => {
            let ttl = Some(values::wire(ttl));
            let request =
                RenewRequest { name: name.clone(), owner: owner.clone(), generation, ttl };
            let answer = service.renew(client.request(request)).await?.into_inner();
            let hold = answer.renewed.then(|| HoldView {
                owner,
                generation: answer.generation,
                expires_at: answer.expires_at.map(|at| at.to_string()),
                remaining: view::span(answer.remaining),
            });
            print(
                client.format,
                "renewed",
                &name,
                hold.as_ref(),
                "is not held so: the hold is over",
            )
        }
        LockCommand::Get { name } => {
            let request = GetLockRequest { name: name.clone() };
            let answer = service.get_lock(client.request(request)).await?.into_inner();
            let hold = answer.held.then(|| HoldView {
                owner: answer.owner,
                generation: answer.generation,
                expires_at: answer.expires_at.map(|at| at.to_string()),
                remaining: view::span(answer.remaining),
            });
            print(client.format, "held", &name, hold.as_ref(), "is held by nobody")
        }
        LockCommand::Release(ReleaseArgs { hold: HoldArgs { name, owner, generation } }) => {
            let request = LockServiceReleaseRequest { name: name.clone(), owner, generation };
            let released = service.release(client.request(request)).await?.into_inner().released;
            match client.format {
                Format::Json => output::json(&json!({ "released": released }))?,
                Format::Table if released => output::text(&format!("{name} is released"))?,
                Format::Table => eprintln!("{name} was not held so."),
            }
            Ok(if released { Outcome::Done } else { Outcome::Nothing })
        }
    }
}

fn print(
    format: Format,
    verb: &'static str,
    name: &str,
    hold: Option<&HoldView>,
    otherwise: &str,
) -> Result<Outcome, CliError> {
    match (format, hold) {
        (Format::Json, Some(hold)) => {
            let mut answer = serde_json::to_value(hold).map_err(std::io::Error::from)?;
            answer[verb] = true.into();
            output::json(&answer)?;
        }
        (Format::Json, None) => output::json(&json!({ verb: false }))?,
        (Format::Table, Some(hold)) => output::text(&output::pairs([
            ("lock", output::cell(name)),
            ("owner", output::cell(&hold.owner)),
            ("generation", hold.generation.to_string()),
            ("ends", hold.expires_at.clone().unwrap_or_else(|| "-".into())),
            ("left", hold.remaining.clone().unwrap_or_else(|| "-".into())),
        ]))?,
        (Format::Table, None) => eprintln!("{name} {otherwise}."),
    }
    Ok(if hold.is_some() { Outcome::Done } else { Outcome::Nothing })
}
