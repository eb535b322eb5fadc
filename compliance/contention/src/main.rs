//! Storages under contention: claims and whole lives per second with 1, 8 and 64 claimants, on top
//! of what is pending already, under a foreign transaction that stays open, and while claimants and
//! a server are killed; each beside a loop of the same statements over the bare driver, measured in
//! turns with it. No task may be claimed twice: then it fails.
//!
//! It judges no speed: the table shows the goals, and people decide. `compliance/benches/contention.sh`
//! builds and runs it.

mod rows; // what comes out
mod backends;
mod sections; // start here
mod load;
mod hand;
mod killing;
mod wire;

use clap::Parser;
use hand::Failure;
use std::{path::PathBuf, process::ExitCode};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure storages under contention, each beside the bare driver
#[derive(Debug, Parser)]
struct Args {
    /// Measure this backend alone; may be repeated
    #[arg(long, value_name = "NAME", value_parser = backends::names())]
    only: Vec<String>,
    /// Tasks that are pending beside those that are claimed
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "0,100000,1000000")]
    backlogs: Vec<u64>,
    /// The backlog under the foreign transaction
    #[arg(long, value_name = "N", default_value = "100000")]
    foreign_backlog: u64,
    /// Whole lives that leave dead rows behind, once the foreign transaction is open
    #[arg(long, value_name = "N", default_value = "50000")]
    foreign_lives: u64,
    /// Concurrent claimants, one task a call
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,8,64")]
    claimants: Vec<usize>,
    /// Concurrent callers of whole lives
    #[arg(long, value_name = "N", default_value = "8")]
    workers: usize,
    /// Tasks in each call of whole lives
    #[arg(long, value_name = "N", default_value = "100")]
    batch: u32,
    /// How long each measurement takes
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    seconds: f64,
    /// How often each is taken; the best counts
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: u32,
    /// Tasks that are there to be claimed in one measurement, in place of what suits each backend
    #[arg(long, value_name = "N")]
    supply: Option<u64>,
    /// How long claimants are killed
    #[arg(long, value_name = "SECONDS", default_value = "6")]
    kill_seconds: f64,
    /// The `rdq` program: with it a server is killed too, and whole lives and pick-ups are measured
    /// through it
    #[arg(long, value_name = "PATH")]
    rdq: Option<PathBuf>,
    /// Whole lives through the server
    #[arg(long, value_name = "N", default_value = "200000")]
    wire_lives: u64,
    /// Pick-ups through the server
    #[arg(long, value_name = "N", default_value = "500")]
    pick_ups: u64,
    /// Print JSON in place of tables
    #[arg(long)]
    json: bool,
    /// Be a claimant of this store, to be killed
    #[arg(long, value_name = "URL", hide = true)]
    claim_from: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(url) = &args.claim_from {
        killing::claim_until_killed(url).await;
        return ExitCode::SUCCESS;
    }
    match measure(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("A task was claimed twice, or a claim was lost.");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Measures all backends that there are; whether none handed a task out twice or lost one.
async fn measure(args: &Args) -> Result<bool, Failure> {
    let mut report = rows::Report::default();
    for (name, start) in backends::ALL {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == name) {
            continue;
        }
        match start().await? {
            Ok(backend) => sections::measure(args, backend.as_ref(), &mut report).await?,
            Err(missing) => eprintln!("{name}: left out: {missing}"),
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(report.is_sound())
}
