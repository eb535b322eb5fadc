//! `rdq schedule`: tasks by the clock, stored, listed, paused and removed.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    values::{self, Source},
    view,
};
use clap::{Args, Subcommand};
use rdq_proto::v1::{
    DeleteScheduleRequest, ListSchedulesRequest, PauseScheduleRequest, PutScheduleRequest,
    ResumeScheduleRequest, Schedule,
};
use serde::Serialize;
use std::{collections::BTreeMap, time::Duration};

/// Enqueue tasks by the clock
#[derive(Debug, Args)]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    command: ScheduleCommand,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum ScheduleCommand {
    Put(Box<PutArgs>),
    /// List schedules, by name
    List,
    /// Remove a schedule; tasks that it enqueued stay
    Delete {
        /// The schedule
        name: String,
    },
    /// Stop a schedule; boundaries that pass meanwhile are not caught up
    Pause {
        /// The schedule
        name: String,
    },
    /// Let a schedule go on, from now
    Resume {
        /// The schedule
        name: String,
    },
}

/// Store a schedule, in place of the one of that name
#[derive(Debug, Args)]
#[command(
    after_help = "An unchanged spec and time zone keep the next boundary; changed ones start from now. After a
downtime up to 64 missed boundaries are caught up.

Specs:
  @every 90s        each 90 seconds from its creation on; units s, m, h and d
  30 2 * * 1-5      cron: minute, hour, day of month, month, day of week
  @hourly, @daily, @weekly, @monthly, @yearly

Examples:
  rdq schedule put nightly '0 3 * * *' reports build --time-zone Europe/Berlin
  rdq schedule put pulse '@every 30s' health ping --expires-in 1m"
)]
struct PutArgs {
    /// The schedule
    name: String,
    /// When
    spec: String,
    /// The queue of its tasks
    queue: String,
    /// The handler of its tasks
    handler: String,
    /// The IANA time zone of a cron spec, for instance Europe/Berlin; UTC if left out
    #[arg(long, value_name = "ZONE", default_value = "", hide_default_value = true)]
    time_zone: String,
    /// The payload of its tasks: TEXT, @FILE, or - for standard input
    #[arg(long, value_name = "TEXT", value_parser = values::source, allow_hyphen_values = true)]
    payload: Option<Source>,
    /// A header of its tasks; may be repeated
    #[arg(long = "header", value_name = "KEY=VALUE", value_parser = values::key_value)]
    headers: Vec<(String, String)>,
    /// The priority of its tasks: higher first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// How often each of its tasks is tried; the queue's setting if left out
    #[arg(long, value_name = "N")]
    max_attempts: Option<i32>,
    /// A task not finished so long after its boundary is dead; never if left out
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    expires_in: Option<Duration>,
    /// Store it paused
    #[arg(long)]
    paused: bool,
}

/// A schedule for programs.
#[derive(Debug, Serialize)]
struct ScheduleView {
    name: String,
    spec: String,
    time_zone: String,
    queue: String,
    handler_ref: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in: Option<String>,
    paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_boundary_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_boundary_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

impl From<Schedule> for ScheduleView {
    fn from(schedule: Schedule) -> Self {
        let (payload, payload_base64) = values::text_or_base64(&schedule.payload);
        let time_zone = schedule.time_zone;
        Self {
            name: schedule.name,
            spec: schedule.spec,
            time_zone: if time_zone.is_empty() { "UTC".into() } else { time_zone },
            queue: schedule.queue,
            handler_ref: schedule.handler_ref,
            payload,
            payload_base64,
            headers: schedule.headers.into_iter().collect(),
            priority: schedule.priority,
            max_attempts: schedule.max_attempts,
            expires_in: view::span(schedule.expires_in),
            paused: schedule.paused,
            next_boundary_at: schedule.next_boundary_at.map(|at| at.to_string()),
            last_boundary_at: schedule.last_boundary_at.map(|at| at.to_string()),
            created_at: schedule.created_at.map(|at| at.to_string()),
        }
    }
}

impl ScheduleView {
    const HEADS: [&str; 7] = ["SCHEDULE", "SPEC", "ZONE", "QUEUE", "HANDLER", "NEXT", "LAST"];

    fn row(&self) -> [String; 7] {
        let next = match &self.next_boundary_at {
            _ if self.paused => "paused".into(),
            Some(next) => next.clone(),
            None => "-".into(),
        };
        [
            output::cell(&self.name),
            output::cell(&self.spec),
            output::cell(&self.time_zone),
            output::cell(&self.queue),
            output::cell(&self.handler_ref),
            next,
            self.last_boundary_at.clone().unwrap_or_else(|| "-".into()),
        ]
    }
}

/// Runs `rdq schedule`.
pub(crate) async fn schedule(args: ScheduleArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let mut service = client.schedules();
    let schedule = match args.command {
        ScheduleCommand::List => return list(&client).await,
        ScheduleCommand::Delete { name } => return delete(name, &client).await,
        ScheduleCommand::Put(put) => {
            let request = client.request(PutScheduleRequest { schedule: Some(put.wire()?) });
            service.put_schedule(request).await?.into_inner().schedule
        }
        ScheduleCommand::Pause { name } => {
            let request = client.request(PauseScheduleRequest { name });
            service.pause_schedule(request).await?.into_inner().schedule
        }
        ScheduleCommand::Resume { name } => {
            let request = client.request(ResumeScheduleRequest { name });
            service.resume_schedule(request).await?.into_inner().schedule
        }
    };
    let schedule =
        schedule.ok_or_else(|| CliError::Malformed("the answer has no schedule".into()))?;
    let schedule = ScheduleView::from(schedule);
    match client.format {
        Format::Json => output::json_under("schedule", &schedule)?,
        Format::Table => output::text(&output::table(ScheduleView::HEADS, [schedule.row()]))?,
    }
    Ok(Outcome::Done)
}

impl PutArgs {
    fn wire(self: Box<Self>) -> Result<Schedule, CliError> {
        let payload = self.payload.as_ref().map(Source::read).transpose()?.unwrap_or_default();
        Ok(Schedule {
            name: self.name,
            spec: self.spec,
            time_zone: self.time_zone,
            queue: self.queue,
            handler_ref: self.handler,
            payload,
            headers: self.headers.into_iter().collect(),
            priority: self.priority,
            max_attempts: self.max_attempts,
            expires_in: self.expires_in.map(values::wire),
            paused: self.paused,
            ..Schedule::default()
        })
    }
}

async fn list(client: &Client) -> Result<Outcome, CliError> {
    let mut service = client.schedules();
    let mut schedules = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListSchedulesRequest { page_size: Some(1000), page_token };
        let page = service.list_schedules(client.request(request)).await?.into_inner();
        schedules.extend(page.schedules.into_iter().map(ScheduleView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    match client.format {
        Format::Json => output::json_under("schedules", &schedules)?,
        Format::Table => {
            let rows = schedules.iter().map(ScheduleView::row);
            output::text(&output::table(ScheduleView::HEADS, rows))?;
        }
    }
    Ok(Outcome::Done)
}

async fn delete(name: String, client: &Client) -> Result<Outcome, CliError> {
    let request = client.request(DeleteScheduleRequest { name: name.clone() });
    let existed = client.schedules().delete_schedule(request).await?.into_inner().existed;
    match client.format {
        Format::Json => output::json_under("existed", &existed)?,
        Format::Table if existed => output::text(&format!("{name} is removed"))?,
        Format::Table => eprintln!("There was no schedule {name}."),
    }
    Ok(if existed { Outcome::Done } else { Outcome::Nothing })
}
