//! Many servers on one database, each kind in turn. They start at once; and of two, with producers and
//! workers on both, those who hold claims, a server, and the database itself are killed or stopped
//! under load. Each such test proves that its fault happened, judges the history by the rules C1 to
//! C8, and ends only once everything is worked off: service has resumed by itself. What is a server's
//! own is in `faults`.

mod shared_database {
    pub(super) mod started;
    pub(super) mod scene;
    pub(super) mod killed;
    pub(super) mod database_gone;
    pub(super) mod stopped;
    pub(super) mod disk;
    pub(super) mod clocks;
    pub(super) mod coordination;
}
mod harness;

use harness::{Verdict, database::Kind, trial};
use libtest_mimic::Trial;
use rdq_compliance::Random;
use shared_database::{clocks, coordination, database_gone, disk, killed, started, stopped};
use std::process::ExitCode;

const ALL: [Kind; 4] = [Kind::Sqlite, Kind::Postgres, Kind::Redis, Kind::Mongodb];
/// Those that are processes of their own.
const SERVERS: [Kind; 3] = [Kind::Postgres, Kind::Redis, Kind::Mongodb];

fn main() -> ExitCode {
    let trials = [
        on(&ALL, "eight_servers_start_at_once", started::at_once_share_one_database),
        on(&ALL, "claimants_and_servers_are_killed", killed::loses_nothing),
        on(&ALL, "lock_holders_and_servers_are_killed", coordination::late_holders_are_fenced_off),
        on(&ALL, "servers_are_killed_under_transfers", coordination::transfers_keep_the_sum),
        on(&ALL, "a_server_stops_longer_than_its_leases", stopped::server_is_too_late),
        on(&SERVERS, "the_database_is_killed", database_gone::killed_is_borne),
        on(&SERVERS, "the_database_stops_longer_than_the_leases", stopped::database_is_waited_for),
        on(&SERVERS, "the_databases_power_is_cut", disk::power_cut_loses_nothing),
        on(&SERVERS, "the_databases_disk_is_full", disk::full_disk_is_told),
        on(&SERVERS, "the_clocks_of_servers_are_hours_off", clocks::of_servers_do_not_matter),
    ];
    harness::run(trials.into_iter().flatten().collect())
}

/// A test on each of these databases.
fn on<F>(kinds: &[Kind], name: &str, test: fn(Kind, Random) -> F) -> Vec<Trial>
where
    F: Future<Output = Verdict> + 'static,
{
    let named =
        |&kind: &Kind| trial(&format!("{}::{name}", kind.name()), move |random| test(kind, random));
    kinds.iter().map(named).collect()
}
