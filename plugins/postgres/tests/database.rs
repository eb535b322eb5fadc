//! What is PostgreSQL's own: the schema as a contract, plans, migrations, start checks and faults.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "schema/mod.rs"]
mod schema;

#[path = "database/given.rs"]
mod given;

#[path = "database/checks.rs"]
mod checks;
#[path = "database/coordination.rs"]
mod coordination;
#[path = "database/contract.rs"]
mod contract;
#[path = "database/faults.rs"]
mod faults;
#[path = "database/ledger.rs"]
mod ledger;
#[path = "database/migrations.rs"]
mod migrations;
#[path = "database/plans.rs"]
mod plans;
#[path = "database/races.rs"]
mod races;
#[path = "database/waiting.rs"]
mod waiting;
