//! `rdq stream`: events, published, read and followed, and the offsets of consumers.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    values::{self, Source},
};
use clap::{Args, Subcommand};
use rdq_proto::v1::{
    GetOffsetRequest, PublishRequest, ReadRequest, SaveOffsetRequest, StreamEvent,
    SubscribeRequest, TrimRequest, read_request::Start,
};
use serde::Serialize;
use serde_json::json;
use tonic::Request;

/// Publish and read events of streams
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(subcommand)]
    command: StreamCommand,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum StreamCommand {
    Publish(PublishArgs),
    Read(ReadArgs),
    Subscribe(SubscribeArgs),
    Offset(OffsetArgs),
    Trim(TrimArgs),
}

/// Append an event
#[derive(Debug, Args)]
#[command(after_help = "Not safe to repeat after a lost answer: the event may be there twice.

Examples:
  rdq stream publish orders --payload '{\"id\": 42}'
  rdq stream publish orders --key customer-7 --payload @order.json")]
struct PublishArgs {
    /// The stream
    stream: String,
    /// Carried with the event, not interpreted
    #[arg(long)]
    key: Option<String>,
    /// The payload: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", value_parser = values::source, allow_hyphen_values = true)]
    payload: Option<Source>,
}

/// Read events, and save nothing
#[derive(Debug, Args)]
#[command(after_help = "No event after the start is exit code 4.

Examples:
  rdq stream read orders
  rdq stream read orders --after 1000 --limit 10
  rdq stream read orders --consumer billing --output json | jq '.events[].payload'")]
struct ReadArgs {
    /// The stream
    stream: String,
    /// Begin after this offset; the beginning if left out
    #[arg(long, value_name = "OFFSET", conflicts_with = "consumer", allow_negative_numbers = true)]
    after: Option<i64>,
    /// Begin after what this consumer saved
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Read at most so many
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: i32,
}

/// Read on as events are published, from what the consumer saved
#[derive(Debug, Args)]
#[command(
    after_help = "With --output json, one event on each line. With --save, what was printed is saved: a restart goes
on after it.

Examples:
  rdq stream subscribe orders billing --save
  rdq stream subscribe orders audit --output json | jq --unbuffered .payload"
)]
struct SubscribeArgs {
    /// The stream
    stream: String,
    /// Who reads
    consumer: String,
    /// Save the offset of each message once its events are printed
    #[arg(long)]
    save: bool,
    /// Stop after so many events; never if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Show what a consumer has read up to, or save it
#[derive(Debug, Args)]
#[command(after_help = "An offset below the saved one changes nothing.

Examples:
  rdq stream offset orders billing
  rdq stream offset orders billing --save 1200")]
struct OffsetArgs {
    /// The stream
    stream: String,
    /// Who reads
    consumer: String,
    /// Save this offset
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true)]
    save: Option<i64>,
}

/// Remove the oldest events for good
#[derive(Debug, Args)]
#[command(
    after_help = "What is left keeps its offsets, and saved offsets stay. On a terminal it asks first.

Examples:
  rdq stream trim orders --horizon 1000"
)]
struct TrimArgs {
    /// The stream
    stream: String,
    /// Events up to this offset go, inclusive
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true)]
    horizon: i64,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

/// An event for programs.
#[derive(Debug, Serialize)]
struct EventView {
    offset: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

impl From<StreamEvent> for EventView {
    fn from(event: StreamEvent) -> Self {
        let (payload, payload_base64) = values::text_or_base64(&event.payload);
        let created_at = event.created_at.map(|at| at.to_string());
        Self { offset: event.offset, key: event.key, payload, payload_base64, created_at }
    }
}

impl EventView {
    const HEADS: [&str; 4] = ["OFFSET", "PUBLISHED", "KEY", "PAYLOAD"];

    fn row(&self) -> [String; 4] {
        let payload = self.payload.as_ref().or(self.payload_base64.as_ref());
        [
            self.offset.to_string(),
            self.created_at.clone().unwrap_or_else(|| "-".into()),
            self.key.as_deref().map_or_else(|| "-".into(), output::cell),
            payload.map(|payload| output::cell(payload)).unwrap_or_default(),
        ]
    }
}

/// Runs `rdq stream`.
pub(crate) async fn stream(args: StreamArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    match args.command {
        StreamCommand::Publish(args) => publish(args, &client).await,
        StreamCommand::Read(args) => read(args, &client).await,
        StreamCommand::Subscribe(args) => subscribe(args, &client).await,
        StreamCommand::Offset(args) => offset(args, &client).await,
        StreamCommand::Trim(args) => trim(args, &client).await,
    }
}

async fn publish(args: PublishArgs, client: &Client) -> Result<Outcome, CliError> {
    let payload = args.payload.as_ref().map(Source::read).transpose()?.unwrap_or_default();
    let request = PublishRequest { stream: args.stream, key: args.key, payload };
    let offset = client.streams().publish(client.request(request)).await?.into_inner().offset;
    match client.format {
        Format::Json => output::json_under("offset", &offset)?,
        Format::Table => output::text(&offset.to_string())?,
    }
    Ok(Outcome::Done)
}

async fn read(args: ReadArgs, client: &Client) -> Result<Outcome, CliError> {
    let start = match args.consumer {
        Some(consumer) => Start::Consumer(consumer),
        None => Start::Offset(args.after.unwrap_or(0)),
    };
    let request = ReadRequest { stream: args.stream, start: Some(start), limit: Some(args.limit) };
    let answer = client.streams().read(client.request(request)).await?.into_inner();
    let events: Vec<_> = answer.events.into_iter().map(EventView::from).collect();
    match client.format {
        Format::Json => output::json_under("events", &events)?,
        Format::Table if events.is_empty() => eprintln!("No event is there."),
        Format::Table => {
            output::text(&output::table(EventView::HEADS, events.iter().map(EventView::row)))?;
        }
    }
    Ok(if events.is_empty() { Outcome::Nothing } else { Outcome::Done })
}

async fn subscribe(args: SubscribeArgs, client: &Client) -> Result<Outcome, CliError> {
    let SubscribeArgs { stream, consumer, save, count } = args;
    let limit = count.map(|count| i32::try_from(count.min(100)).unwrap_or(100));
    let request = SubscribeRequest { stream: stream.clone(), consumer: consumer.clone(), limit };
    // A subscription lasts as long as its reader.
    let mut messages = client.streams().subscribe(Request::new(request)).await?.into_inner();
    let mut left = count;
    while let Some(message) = messages.message().await? {
        let mut last = None;
        for event in message.events {
            if left == Some(0) {
                break;
            }
            let event = EventView::from(event);
            match client.format {
                Format::Json => output::json(&event)?,
                Format::Table => output::text(&event.row().join("  "))?,
            }
            last = Some(event.offset);
            left = left.map(|left| left - 1);
        }
        if let Some(offset) = last.filter(|_| save) {
            let (stream, consumer) = (stream.clone(), consumer.clone());
            let request = SaveOffsetRequest { stream, consumer, offset };
            client.streams().save_offset(client.request(request)).await?;
        }
        if left == Some(0) {
            return Ok(Outcome::Done);
        }
    }
    Err(CliError::Cut("the subscription"))
}

async fn offset(args: OffsetArgs, client: &Client) -> Result<Outcome, CliError> {
    let OffsetArgs { stream, consumer, save } = args;
    let offset = if let Some(offset) = save {
        let request = SaveOffsetRequest { stream, consumer, offset };
        client.streams().save_offset(client.request(request)).await?.into_inner().offset
    } else {
        let request = GetOffsetRequest { stream, consumer };
        client.streams().get_offset(client.request(request)).await?.into_inner().offset
    };
    match client.format {
        Format::Json => output::json_under("offset", &offset)?,
        Format::Table => output::text(&offset.to_string())?,
    }
    Ok(Outcome::Done)
}

async fn trim(args: TrimArgs, client: &Client) -> Result<Outcome, CliError> {
    if !args.yes && output::is_interactive() {
        let question =
            format!("Remove the events of {:?} up to offset {}?", args.stream, args.horizon);
        if !output::confirm(&question)? {
            return Ok(Outcome::Nothing);
        }
    }
    let request = TrimRequest { stream: args.stream, horizon: args.horizon };
    // No deadline: a long stream takes its time.
    let count = client.streams().trim(Request::new(request)).await?.into_inner().count;
    match client.format {
        Format::Json => output::json(&json!({ "count": count }))?,
        Format::Table => output::text(&format!("{} removed", output::count(count, "event")))?,
    }
    Ok(if count == 0 { Outcome::Nothing } else { Outcome::Done })
}
