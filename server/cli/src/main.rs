//! The rdq binary: `serve` runs a server, every other command talks to one. Here is only which
//! command runs and how the process ends.

mod errors; // start here: how commands end

mod serve;
mod migrate;

mod connect;
mod output;
mod values;
mod view;

mod enqueue;
mod tasks;
mod claims;
mod dlq;
mod queue;
mod queue_config;
mod stats;
mod stream;
mod lock;
mod schedule;
mod bench;
mod check;

use clap::{Parser, Subcommand};
use errors::{CliError, Outcome};
use output::Format;
use std::process::ExitCode;

/// A server under load allocates all the time, on one thread what another one frees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Durable tasks: enqueue, claim, retry, dead-letter, redrive
#[derive(Debug, Parser)]
#[command(name = "rdq", version, after_help = errors::EXIT_CODES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server
    #[command(
        after_help = "What is logged is chosen with RDQ_LOG, for instance RDQ_LOG=warn; info if it is unset.

Examples:
  rdq serve
  rdq serve --storage sqlite:/var/lib/rdq/rdq.db --config /etc/rdq.yaml
  rdq serve --storage postgres://rdq@db7/tasks
  rdq serve --storage redis://db7:6379/0?namespace=tasks
  rdq serve --storage memory: --listen 127.0.0.1:0"
    )]
    Serve(rdq_daemon::ServeArgs),
    Migrate(migrate::Arguments),
    Enqueue(enqueue::EnqueueArgs),
    Get(tasks::GetArgs),
    List(tasks::ListArgs),
    Cancel(tasks::CancelArgs),
    Claim(claims::ClaimArgs),
    Complete(claims::CompleteArgs),
    Fail(claims::FailArgs),
    Release(claims::ReleaseArgs),
    Dlq(dlq::DlqArgs),
    Queue(queue::QueueArgs),
    Stats(stats::StatsArgs),
    Watch(stats::WatchArgs),
    Stream(stream::StreamArgs),
    Lock(lock::LockArgs),
    Schedule(schedule::ScheduleArgs),
    Bench(bench::BenchArgs),
    Check(check::CheckArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let format = cli.command.format();
    errors::conclude(&cli.command.run().await, format)
}

impl Command {
    async fn run(self) -> Result<Outcome, CliError> {
        match self {
            Self::Serve(args) => serve::serve(args).await,
            Self::Migrate(args) => migrate::migrate(args).await,
            Self::Enqueue(args) => enqueue::enqueue(args).await,
            Self::Get(args) => tasks::get(args).await,
            Self::List(args) => tasks::list(args).await,
            Self::Cancel(args) => tasks::cancel(args).await,
            Self::Claim(args) => claims::claim(args).await,
            Self::Complete(args) => claims::complete(args).await,
            Self::Fail(args) => claims::fail(args).await,
            Self::Release(args) => claims::release(args).await,
            Self::Dlq(args) => dlq::dlq(args).await,
            Self::Queue(args) => queue::queue(args).await,
            Self::Stats(args) => stats::stats(args).await,
            Self::Watch(args) => stats::watch(args).await,
            Self::Stream(args) => stream::stream(args).await,
            Self::Lock(args) => lock::lock(args).await,
            Self::Schedule(args) => schedule::schedule(args).await,
            Self::Bench(args) => bench::bench(args).await,
            Self::Check(args) => check::check(args).await,
        }
    }

    /// In which form the command tells of errors, too.
    fn format(&self) -> Format {
        let client = match self {
            Self::Serve(_) => return Format::Table,
            Self::Migrate(args) => return args.output,
            Self::Enqueue(args) => &args.client,
            Self::Get(args) => &args.client,
            Self::List(args) => &args.client,
            Self::Cancel(args) => &args.client,
            Self::Claim(args) => &args.client,
            Self::Complete(args) => &args.client,
            Self::Fail(args) => &args.client,
            Self::Release(args) => &args.client,
            Self::Dlq(args) => &args.client,
            Self::Queue(args) => &args.client,
            Self::Stats(args) => &args.client,
            Self::Watch(args) => &args.client,
            Self::Stream(args) => &args.client,
            Self::Lock(args) => &args.client,
            Self::Schedule(args) => &args.client,
            Self::Bench(args) => &args.client,
            Self::Check(args) => &args.client,
        };
        client.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_of_all_commands_fit_together() {
        Cli::command().debug_assert();
    }
}
