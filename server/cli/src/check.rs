//! `rdq check`: the compliance kit against any address that speaks the contract. What the cases say
//! is the kit's business.

use crate::{
    connect::{self, Client, ClientArgs},
    errors::{CliError, Outcome},
    output::Format,
};
use clap::Args;
use rdq_compliance::Fixture;
use rdq_remote::RemoteStorage;
use rdq_spi::{Capabilities, Durability, Faculties, Storage};
use std::sync::{Arc, OnceLock};

/// Check that a server keeps the contract
#[derive(Debug, Args)]
#[command(
    after_help = "Runs the cases of the compliance kit, each on queues and ids of its own with random names. Cases
that need a store of their own, or no engine before it, are shown as ignored. A case that fails
makes the exit code 1. The queues of the cases are named kit-… and stay, with the tasks in them:
check a server before it has users.

Examples:
  rdq check --server http://db7:7420
  rdq check --list
  rdq check lease --skip poison"
)]
pub(crate) struct CheckArgs {
    /// Only cases whose name contains this
    filter: Option<String>,
    /// Only the case of exactly this name
    #[arg(long, requires = "filter")]
    exact: bool,
    /// Leave out cases whose name contains this; may be repeated
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
    /// Name the cases, and run none
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// Their claim is what the fixture says, and here that is only what the server itself said.
const CLAIMS_CASES: [&str; 2] = [
    "capabilities::they_are_what_the_fixture_claims",
    "capabilities::faculties_are_what_the_fixture_claims",
];

/// The cases that a server is not asked for which lacks what they are about.
fn beyond(has: Faculties) -> Vec<&'static str> {
    let areas = [
        (has.signals, "signals::"),
        (has.signals && has.streams, "_wakes_who_listens"),
        (has.signals && has.streams, "beside_a_trim"),
        (has.streams, "streams::"),
        (has.locks, "locks::"),
        (has.records, "records::"),
        (has.transactions, "commit::"),
        (has.interactive, "interactive::"),
        (has.ledger, "ledger::"),
    ];
    areas.into_iter().filter(|(has, _)| !has).map(|(_, area)| area).collect()
}

/// Where every store of the fixture is. The kit makes fixtures from nothing.
static SERVER: OnceLock<String> = OnceLock::new();

/// A server that others may use, too.
struct Served;

impl Fixture for Served {
    /// What an engine offers, whatever is behind it.
    const CAPABILITIES: Capabilities = Capabilities {
        durability: Durability::PowerCut,
        notify: true,
        waiting_claims: false,
        filter_pushdown: true,
        batch_enqueue: true,
    };
    /// Those that the server lacks are left out by name.
    const FACULTIES: Faculties = Faculties::ALL;
    const ISOLATED: bool = false;
    const THROUGH_ENGINE: bool = true;

    async fn create() -> Self {
        Self
    }

    async fn open(&self) -> Arc<dyn Storage> {
        let server = SERVER.get().expect("set before the kit runs");
        let storage = RemoteStorage::connect(server).await;
        Arc::new(storage.expect("the server was there a moment ago"))
    }
}

/// Runs `rdq check`.
pub(crate) async fn check(args: CheckArgs) -> Result<Outcome, CliError> {
    let mut has = Faculties::ALL;
    if !args.list {
        // An address that is wrong is one error, not one in each case.
        Client::connect(&args.client).await?;
        let server = connect::address(&args.client.server)?;
        let storage = RemoteStorage::connect(&server).await;
        let storage = storage.map_err(|error| CliError::Malformed(error.to_string()))?;
        has = Faculties::of(&storage);
        SERVER.get_or_init(|| server);
    }
    let arguments = arguments(&args, &beyond(has));
    let kit = tokio::task::spawn_blocking(|| rdq_compliance::check::<Served>(arguments));
    let summary = kit.await.map_err(|error| CliError::Malformed(error.to_string()))?;
    Ok(match (summary.failed, summary.passed) {
        (1.., _) => Outcome::Refused,
        (0, 0) if !args.list => Outcome::Nothing,
        _ => Outcome::Done,
    })
}

/// The arguments as the kit takes them, which are those of Rust's test programs.
fn arguments(args: &CheckArgs, beyond: &[&str]) -> Vec<String> {
    let skipped = CLAIMS_CASES.iter().chain(beyond);
    let mut arguments: Vec<_> = skipped.map(|text| format!("--skip={text}")).collect();
    arguments.extend(args.skip.iter().map(|text| format!("--skip={text}")));
    if args.exact {
        arguments.push("--exact".into());
    }
    if args.list {
        arguments.push("--list".into());
    }
    if args.client.output == Format::Json {
        arguments.push("--format=json".into());
    }
    // After `--` a filter may look like anything.
    arguments.push("--".into());
    arguments.extend(args.filter.clone());
    arguments
}
