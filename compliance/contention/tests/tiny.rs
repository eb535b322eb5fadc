//! The benchmark works: a tiny run of it measures every row of every backend that can be started
//! here. It says nothing of speed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rdq_test_servers::{all_are_demanded, mongodb, postgres, redis::Flavor};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const CONTENTION: &str = env!("CARGO_BIN_EXE_rdq-contention");

/// The `rdq` of the same build. It is there where the whole workspace is tested.
fn rdq() -> Option<PathBuf> {
    let rdq = Path::new(CONTENTION).with_file_name("rdq");
    assert!(rdq.is_file() || !all_are_demanded(), "{} is missing", rdq.display());
    rdq.is_file().then_some(rdq)
}

#[test]
fn a_tiny_run_measures_every_row_and_finds_no_double_claim() {
    let mut tiny = Command::new(CONTENTION);
    tiny.args(["--json", "--backlogs", "0,300", "--foreign-backlog", "300"]);
    tiny.args(["--foreign-lives", "100", "--claimants", "1,3", "--workers", "2", "--batch", "10"]);
    tiny.args(["--seconds", "0.05", "--rounds", "1", "--kill-seconds", "1", "--supply", "200"]);
    tiny.args(["--wire-lives", "200", "--pick-ups", "3"]);
    let rdq = rdq();
    if let Some(rdq) = &rdq {
        tiny.arg("--rdq").arg(rdq);
    }
    let output = tiny.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let of = |backend: &str| rows.iter().filter(|row| row["backend"] == backend).count();
    let on = |missing: Option<String>, rows| if missing.is_none() { rows } else { 0 };
    // Two kinds of claims and one of lives, on two backlogs.
    assert_eq!(of("SQLite"), 6);
    assert_eq!(of("memory"), 6);
    assert_eq!(of("PostgreSQL"), on(postgres::missing_locally(), 9), "and under a transaction");
    assert_eq!(of("MongoDB"), on(mongodb::missing_locally(), 9), "and under a transaction");
    let servers = on(postgres::missing_locally(), 1)
        + on(Flavor::Redis.missing_locally(), 3)
        + on(mongodb::missing_locally(), 1);
    for redis in ["Redis, no AOF", "Redis, everysec", "Redis, always"] {
        assert_eq!(of(redis), on(Flavor::Redis.missing_locally(), 6));
    }
    for row in rows {
        assert!(row["rdq"].as_f64().unwrap() > 0.0, "{row}");
        let is_embedded = row["backend"] == "SQLite" || row["backend"] == "memory";
        assert_eq!(row["bare"].is_null(), is_embedded, "{row}");
    }
    assert_eq!(report["doubles"], 0);
    let killed = report["killed"].as_array().unwrap();
    assert_eq!(killed.len(), servers);
    assert!(killed.iter().all(|it| it["kills"].as_u64().unwrap() > 0));
    let wire = report["wire"].as_array().unwrap();
    assert_eq!(wire.len(), if rdq.is_some() { servers } else { 0 });
}
