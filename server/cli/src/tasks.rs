//! `rdq get`, `rdq list` and `rdq cancel`: tasks one by one, and the pages of a queue.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    view::{self, TaskView},
};
use bytes::Bytes;
use clap::Args;
use rdq_proto::v1::{CancelRequest, GetRequest, ListRequest, TaskStatus};
use serde::Serialize;

/// The most tasks that one page has.
pub(crate) const PAGE_SIZE_MAX: u32 = 1000;

/// Show one task with its whole history
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rdq get 01JV8Z3K9D0P4Y7T6R5Q2W1X0N
  rdq get order-42 --output json | jq -r .task.payload")]
pub(crate) struct GetArgs {
    /// The task
    id: String,
    /// The outbox, if it is a message of one
    #[arg(long, value_name = "NAME")]
    outbox: Option<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// List the tasks of a queue, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  rdq list emails
  rdq list emails --status dead --limit 10
  rdq list emails --output json | jq -r '.tasks[].id'")]
pub(crate) struct ListArgs {
    /// The queue
    queue: String,
    /// Only tasks in this status
    #[arg(long, value_enum)]
    status: Option<StatusArg>,
    /// Also read the attempts; shown with --output json
    #[arg(long)]
    attempts: bool,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Cancel a task that is pending or in flight, for good
#[derive(Debug, Args)]
#[command(after_help = "A task that has finished does not change; the exit code is 4 then.

Examples:
  rdq cancel order-42")]
pub(crate) struct CancelArgs {
    /// The tasks
    #[arg(required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// How much of a list to show, and from where.
#[derive(Debug, Args)]
pub(crate) struct Paging {
    /// Show at most so many
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Go on where an earlier list ended
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    pub(crate) page_token: String,
}

/// A status as people type it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum StatusArg {
    Pending,
    InFlight,
    Succeeded,
    Dead,
    Cancelled,
}

impl From<StatusArg> for TaskStatus {
    fn from(status: StatusArg) -> Self {
        match status {
            StatusArg::Pending => Self::Pending,
            StatusArg::InFlight => Self::InFlight,
            StatusArg::Succeeded => Self::Succeeded,
            StatusArg::Dead => Self::Dead,
            StatusArg::Cancelled => Self::Cancelled,
        }
    }
}

/// Runs `rdq get`.
pub(crate) async fn get(args: GetArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let response =
        client.tasks().get(client.request(GetRequest { id: args.id, outbox: args.outbox })).await?;
    let task = TaskView::decode(&response.into_inner().task)?;
    match client.format {
        Format::Table => output::text(&task.page())?,
        Format::Json => output::json_under("task", &task)?,
    }
    Ok(Outcome::Done)
}

/// Runs `rdq list`.
pub(crate) async fn list(args: ListArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let mut service = client.tasks();
    let status = args.status.map_or(TaskStatus::Unspecified, TaskStatus::from);
    let mut pages = Pages::new(&args.paging);
    while let Some(page_size) = pages.next_size() {
        let request = ListRequest {
            queue: args.queue.clone(),
            status: status.into(),
            page_size: Some(page_size),
            page_token: pages.token.clone(),
            include_attempts: args.attempts,
        };
        let page = service.list(client.request(request)).await?.into_inner();
        pages.add(&page.tasks, page.next_page_token)?;
    }
    pages.print(client.format, TaskView::HEADS, TaskView::row)
}

/// Runs `rdq cancel`.
pub(crate) async fn cancel(args: CancelArgs) -> Result<Outcome, CliError> {
    let client = Client::connect(&args.client).await?;
    let mut service = client.tasks();
    let mut rows = Vec::with_capacity(args.ids.len());
    let mut result = Ok(Outcome::Done);
    for id in args.ids {
        let request = client.request(CancelRequest { id: id.clone() });
        let answer = match service.cancel(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => {
                result = Err(status.into());
                break;
            }
        };
        if !answer.cancelled {
            result = Ok(Outcome::Nothing);
        }
        let status = view::status(answer.status);
        rows.push(Cancelled { id, status, changed: answer.cancelled });
    }
    // Also before an error: what was done is done.
    match client.format {
        Format::Json => output::json_under("tasks", &rows)?,
        Format::Table => {
            for row in rows {
                let verb = if row.changed { "is" } else { "was already" };
                output::text(&format!("{} {verb} {}", row.id, row.status))?;
            }
        }
    }
    result
}

#[derive(Debug, Serialize)]
struct Cancelled {
    id: String,
    status: String,
    #[serde(rename = "cancelled")]
    changed: bool,
}

/// A page for programs.
#[derive(Debug, Serialize)]
struct Page {
    tasks: Vec<TaskView>,
    next_page_token: String,
}

/// Collects pages until there are as many tasks as wanted, or no more.
#[derive(Debug)]
pub(crate) struct Pages {
    limit: usize,
    tasks: Vec<TaskView>,
    is_last: bool,
    /// Where the next page begins.
    pub(crate) token: String,
}

impl Pages {
    /// Begins where the arguments say.
    pub(crate) fn new(paging: &Paging) -> Self {
        Self {
            limit: usize::try_from(paging.limit).unwrap_or(usize::MAX),
            tasks: Vec::new(),
            is_last: false,
            token: paging.page_token.clone(),
        }
    }

    /// How many tasks the next page should have; `None` when no page is wanted.
    pub(crate) fn next_size(&self) -> Option<i32> {
        let missing = self.limit - self.tasks.len();
        let size = u32::try_from(missing).unwrap_or(u32::MAX).min(PAGE_SIZE_MAX);
        (!self.is_last && size > 0).then(|| size.cast_signed())
    }

    /// Adds a page. A server may send fewer tasks than asked for, never more.
    pub(crate) fn add(&mut self, tasks: &[Bytes], next_page_token: String) -> Result<(), CliError> {
        let room = self.limit - self.tasks.len();
        for task in tasks.iter().take(room) {
            self.tasks.push(TaskView::decode(task)?);
        }
        self.is_last = next_page_token.is_empty();
        self.token = next_page_token;
        Ok(())
    }

    /// Prints what was collected, and how to go on.
    pub(crate) fn print<const N: usize>(
        self,
        format: Format,
        heads: [&str; N],
        row: impl Fn(&TaskView) -> [String; N],
    ) -> Result<Outcome, CliError> {
        match format {
            Format::Json => {
                output::json(&Page { tasks: self.tasks, next_page_token: self.token })?;
            }
            Format::Table if self.tasks.is_empty() && self.is_last => {
                eprintln!("There are none.");
            }
            Format::Table => {
                output::text(&output::table(heads, self.tasks.iter().map(row)))?;
                if !self.is_last {
                    eprintln!("There are more: --page-token {}", self.token);
                }
            }
        }
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_asked_for_until_the_limit_or_the_end() {
        let paging = Paging { limit: 1500, page_token: "t".into() };
        let mut pages = Pages::new(&paging);
        assert_eq!(pages.next_size(), Some(1000));
        pages.add(&vec![Bytes::new(); 900], "u".into()).unwrap();
        assert_eq!((pages.next_size(), pages.token.as_str()), (Some(600), "u"));
        pages.add(&vec![Bytes::new(); 600], "v".into()).unwrap();
        assert_eq!(pages.next_size(), None);

        let mut pages = Pages::new(&paging);
        pages.add(&[], String::new()).unwrap();
        assert_eq!(pages.next_size(), None);
    }
}
