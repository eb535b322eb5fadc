//! `rdq queue`: the configuration of queues, read and changed. The keys are in `queue_config`.

use crate::{
    connect::{Client, ClientArgs},
    errors::{CliError, Outcome},
    output::{self, Format},
    queue_config::{self, QueueConfigDoc},
};
use clap::{Args, Subcommand};
use rdq_proto::v1::{
    DeleteQueueRequest, GetQueueRequest, ListQueuesRequest, PauseQueueRequest, PutQueueRequest,
    Queue, QueueConfig, ResumeQueueRequest,
};
use serde::Serialize;
use std::path::PathBuf;

/// Show and change the configuration of queues
#[derive(Debug, Args)]
pub(crate) struct QueueArgs {
    #[command(subcommand)]
    command: QueueCommand,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

#[derive(Debug, Subcommand)]
enum QueueCommand {
    /// List the queues that are configured or hold tasks
    List,
    /// Show a queue's configuration: what is stored, and what is in force
    Get {
        /// The queue
        queue: String,
    },
    Put(PutArgs),
    /// Stop claims from a queue; tasks are still admitted
    Pause {
        /// The queue
        queue: String,
    },
    /// Let claims from a queue go on
    Resume {
        /// The queue
        queue: String,
    },
    /// Remove the stored configuration of a queue that holds no task
    Delete {
        /// The queue
        queue: String,
    },
}

/// Store a queue's configuration
#[derive(Debug, Args)]
#[command(
    after_help = "--file replaces what is stored; --set alone changes it key by key. KEY= inherits the key again.
Changes act on every server within 2 seconds, on tasks already queued too. Two that change one queue
at the same moment can undo each other: the later one wins.

Keys:
  retry.max_attempts, retry.initial_backoff, retry.multiplier, retry.max_backoff, retry.jitter
  classification.retryable, classification.permanent   globs, with commas between them
  execution.lease, execution.timeout, execution.strict_leases
  limits.max_payload_bytes
  retention.succeeded, retention.cancelled, retention.dead
  handler.version_mismatch   run_latest or dead_letter
  paused

Examples:
  rdq queue put emails --set retry.max_attempts=3 --set execution.lease=5m
  rdq queue put emails --set 'classification.permanent=http.4*,bad-address'
  rdq queue put emails --file emails.yaml"
)]
#[group(skip)]
#[command(group = clap::ArgGroup::new("change").required(true).multiple(true).args(["file", "set"]))]
struct PutArgs {
    /// The queue
    queue: String,
    /// Read the configuration from this YAML or JSON file
    #[arg(long)]
    file: Option<PathBuf>,
    /// Set one key; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::values::key_value)]
    set: Vec<(String, String)>,
}

/// A queue for programs.
#[derive(Debug, Serialize)]
struct QueueView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<QueueConfigDoc>,
    effective: QueueConfigDoc,
    #[serde(skip_serializing_if = "Option::is_none")]
    updated_at: Option<String>,
}

impl From<Queue> for QueueView {
    fn from(queue: Queue) -> Self {
        Self {
            name: queue.name,
            config: queue.config.map(QueueConfigDoc::from),
            effective: queue.effective.unwrap_or_default().into(),
            updated_at: queue.updated_at.map(|at| at.to_string()),
        }
    }
}

/// Runs `rdq queue`.
pub(crate) async fn queue(args: QueueArgs) -> Result<Outcome, CliError> {
    if let QueueCommand::Put(put) = &args.command {
        put.check()?;
    }
    let client = Client::connect(&args.client).await?;
    let mut service = client.queues();
    let changed = match args.command {
        QueueCommand::List => return list(&client).await,
        QueueCommand::Delete { queue } => return delete(&client, queue).await,
        QueueCommand::Get { queue } => {
            let request = client.request(GetQueueRequest { name: queue });
            service.get_queue(request).await?.into_inner().queue
        }
        QueueCommand::Put(put) => {
            let config = put.config(&client).await?;
            let request = client.request(PutQueueRequest { name: put.queue, config: Some(config) });
            service.put_queue(request).await?.into_inner().queue
        }
        QueueCommand::Pause { queue } => {
            let request = client.request(PauseQueueRequest { name: queue });
            service.pause_queue(request).await?.into_inner().queue
        }
        QueueCommand::Resume { queue } => {
            let request = client.request(ResumeQueueRequest { name: queue });
            service.resume_queue(request).await?.into_inner().queue
        }
    };
    let queue = changed.ok_or_else(|| CliError::Malformed("the answer has no queue".into()))?;
    print(client.format, queue.into())
}

impl PutArgs {
    /// Finds mistakes before anything is sent, by trying the change on an empty configuration.
    fn check(&self) -> Result<(), CliError> {
        self.apply(QueueConfigDoc::default()).map(drop)
    }

    fn apply(&self, stored: QueueConfigDoc) -> Result<QueueConfigDoc, CliError> {
        let start = match &self.file {
            Some(path) => queue_config::read(path)?,
            None => stored,
        };
        queue_config::set(start, &self.set)
    }

    async fn config(&self, client: &Client) -> Result<QueueConfig, CliError> {
        let stored = if self.file.is_some() {
            None // replaced as a whole
        } else {
            let request = client.request(GetQueueRequest { name: self.queue.clone() });
            let answer = client.queues().get_queue(request).await;
            match answer {
                Ok(answer) => answer.into_inner().queue.and_then(|queue| queue.config),
                // A server that demands declaration has no such queue yet: this declares it.
                Err(status) if status.code() == tonic::Code::NotFound => None,
                Err(status) => return Err(status.into()),
            }
        };
        Ok(self.apply(stored.unwrap_or_default().into())?.into())
    }
}

async fn list(client: &Client) -> Result<Outcome, CliError> {
    let mut service = client.queues();
    let mut queues = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListQueuesRequest { page_size: Some(1000), page_token };
        let page = service.list_queues(client.request(request)).await?.into_inner();
        queues.extend(page.queues.into_iter().map(QueueView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    match client.format {
        Format::Json => output::json_under("queues", &queues)?,
        Format::Table => {
            let heads = ["QUEUE", "PAUSED", "MAX ATTEMPTS", "LEASE", "CONFIGURED"];
            let rows = queues.iter().map(|queue| {
                let [paused, max_attempts, lease] = queue.effective.columns();
                let configured = queue.updated_at.clone().unwrap_or_else(|| "-".into());
                [output::cell(&queue.name), paused, max_attempts, lease, configured]
            });
            output::text(&output::table(heads, rows))?;
        }
    }
    Ok(Outcome::Done)
}

async fn delete(client: &Client, queue: String) -> Result<Outcome, CliError> {
    let request = client.request(DeleteQueueRequest { name: queue.clone() });
    let existed = client.queues().delete_queue(request).await?.into_inner().existed;
    match client.format {
        Format::Json => output::json_under("existed", &existed)?,
        Format::Table if existed => output::text(&format!("{queue} has no configuration now"))?,
        Format::Table => output::text(&format!("{queue} had no configuration"))?,
    }
    Ok(if existed { Outcome::Done } else { Outcome::Nothing })
}

fn print(format: Format, queue: QueueView) -> Result<Outcome, CliError> {
    if format == Format::Json {
        output::json_under("queue", &queue)?;
        return Ok(Outcome::Done);
    }
    let stored = queue.config.unwrap_or_default().keys();
    let effective = queue.effective.keys();
    let rows = queue_config::names().into_iter().map(|name| {
        let in_force = effective.get(name).map_or(queue_config::when_unset(name), String::as_str);
        let from = if stored.contains_key(name) { "stored" } else { "server's default" };
        [name.to_owned(), output::cell(in_force), from.to_owned()]
    });
    let updated = queue.updated_at.map(|at| format!(", stored {at}")).unwrap_or_default();
    output::text(&format!("{}{updated}\n", queue.name))?;
    output::text(&output::table(["KEY", "IN FORCE", "FROM"], rows))?;
    Ok(Outcome::Done)
}
