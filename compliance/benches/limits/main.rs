//! What the machine can do without rdq, for ratios: tonic's bare unary echo, and bare loops over
//! SQLite. With reports of `rdq bench` from the same minutes it prints how near rdq comes.
//!
//! It measures no rdq itself: `run.sh` does the whole round.
#![allow(missing_docs, reason = "a program without a public interface")]

mod bare;
mod echo;
mod measure;
mod ratios;

use measure::Measured;
use serde::Serialize;
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

/// As rdq's own binary allocates; the system's allocator would slow the echo down.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str =
    "usage: limits [--dir DIR] [--rounds N] [--json] [--sqlite REPORT]... [--memory REPORT]...
  --dir DIR        where the SQLite files of the measurement go
  --rounds N       measure so often, and keep the best of each [default: 1]
  --json           print JSON in place of tables
  --sqlite REPORT  a report of `rdq bench --output json` against a server on SQLite; of several, the
                   best of each measurement counts
  --memory REPORT  the same against a server on memory";

/// The limits that were found.
#[derive(Debug, Serialize)]
struct Limits {
    /// 64 callers on 4 connections.
    echo: Measured,
    /// One caller, one call after the other.
    echo_alone: Measured,
    /// One caller that rests before each call, as a pick-up on an idle queue does.
    echo_rested: Measured,
    /// One insert in each transaction.
    commit: Measured,
    /// The same after a rest.
    commit_rested: Measured,
    /// Insert, claim and delete, 100 of each in one transaction.
    lives: Measured,
    /// Events appended, 500 in one transaction.
    publish: Measured,
    /// Events read, 1,000 at a time.
    read: Measured,
}

impl Limits {
    /// One round.
    fn measure(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let (publish, read) = bare::events(dir, 200_000)?;
        Ok(Self {
            echo: echo::measure(64, 4, 200_000)?,
            echo_alone: echo::measure(1, 1, 20_000)?,
            echo_rested: echo::rested(500)?,
            commit: bare::commits(dir, 10_000, None)?,
            commit_rested: bare::commits(dir, 500, Some(measure::REST))?,
            lives: bare::lives(dir, 200_000)?,
            publish,
            read,
        })
    }

    /// The better of each measurement.
    fn better(self, other: Self) -> Self {
        Self {
            echo: self.echo.better(other.echo),
            echo_alone: self.echo_alone.better(other.echo_alone),
            echo_rested: self.echo_rested.better(other.echo_rested),
            commit: self.commit.better(other.commit),
            commit_rested: self.commit_rested.better(other.commit_rested),
            lives: self.lives.better(other.lives),
            publish: self.publish.better(other.publish),
            read: self.read.better(other.read),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut json = false;
    let mut rounds = 1;
    let (mut sqlite, mut memory) = (Vec::new(), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(USAGE);
        match arg.as_str() {
            echo::SERVER => return echo::serve(),
            "--bench" => {} // what `cargo bench` says to every benchmark
            "--dir" => dir = value()?.into(),
            "--json" => json = true,
            "--rounds" => rounds = value()?.parse()?,
            "--sqlite" => sqlite.push(fs::read_to_string(value()?)?),
            "--memory" => memory.push(fs::read_to_string(value()?)?),
            _ => return Err(USAGE.into()),
        }
    }
    let mut limits = Limits::measure(&dir)?;
    for _ in 1..rounds {
        limits = limits.better(Limits::measure(&dir)?);
    }
    let ratios = ratios::of(&limits, &sqlite, &memory)?;
    if json {
        let report = serde_json::json!({ "limits": limits, "ratios": ratios });
        println!("{report}");
        return Ok(());
    }
    for (name, measured) in [
        ("echo, 64 callers, 4 connections", &limits.echo),
        ("echo, 1 caller", &limits.echo_alone),
        ("echo, 1 caller, rested", &limits.echo_rested),
        ("SQLite, commit of one insert", &limits.commit),
        ("SQLite, the same, rested", &limits.commit_rested),
        ("SQLite, whole lives of 100", &limits.lives),
        ("SQLite, events appended by 500", &limits.publish),
        ("SQLite, events read by 1,000", &limits.read),
    ] {
        println!("{name:<34}{measured}");
    }
    if !ratios.is_empty() {
        println!();
        println!("{}", ratios::heads());
        for ratio in &ratios {
            println!("{ratio}");
        }
    }
    Ok(())
}
