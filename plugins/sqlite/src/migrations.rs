//! Brings a file to the newest schema. Versioned, idempotent, and safe with many processes at once:
//! each step is one transaction that looks again at what is there.

use crate::config::OpenError;
use rdq_spi::Migrated;
use rusqlite::{Connection, Transaction, TransactionBehavior};

/// Marks the file as ours: "rdq" and a zero.
const APPLICATION_ID: i64 = 0x7264_7100;

/// Every change, in order; the version is the count. A released one is never edited.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_tasks.sql"),
    include_str!("../migrations/0002_coordination.sql"),
    include_str!("../migrations/0003_ledger.sql"),
];

/// The newest version.
#[allow(clippy::cast_possible_truncation, reason = "a count of files")]
const NEWEST: u32 = MIGRATIONS.len() as u32;

/// Refuses what is not ours or too new, without touching it. Answers the version.
pub(crate) fn check(db: &Connection) -> Result<u32, OpenError> {
    // One snapshot: another process may be making the file ours at this moment.
    let snapshot = db.unchecked_transaction()?;
    check_within(&snapshot)
}

fn check_within(db: &Connection) -> Result<u32, OpenError> {
    let read = |pragma: &str| db.query_row(&format!("PRAGMA {pragma};"), [], |row| row.get(0));
    let application_id: i64 = read("application_id")?;
    let version = read("user_version")?;
    let is_empty: bool =
        db.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema);", [], |row| row.get(0))?;
    if is_empty && application_id == 0 && version == 0 {
        return Ok(0);
    }
    if application_id != APPLICATION_ID {
        return Err(OpenError::Foreign);
    }
    match u32::try_from(version) {
        Ok(version) if version <= NEWEST => Ok(version),
        _ => Err(OpenError::NewerSchema { found: version, known: NEWEST }),
    }
}

/// Refuses a file that was not prepared by a store of this version. A transaction is open.
pub(crate) fn check_newest(db: &Connection) -> Result<(), OpenError> {
    match check_within(db)? {
        NEWEST => Ok(()),
        found => Err(OpenError::OlderSchema { found, known: NEWEST }),
    }
}

/// Applies what is missing.
pub(crate) fn migrate(db: &Connection) -> Result<Migrated, OpenError> {
    let from = Some(check(db)?).filter(|&version| version > 0);
    while check(db)? < NEWEST {
        let step = Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
        // Another process may have been faster.
        let version = check_within(&step)?;
        if let Some(migration) = usize::try_from(version).ok().and_then(|at| MIGRATIONS.get(at)) {
            step.execute_batch(migration)?;
            step.execute_batch(&format!(
                "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};",
                version + 1
            ))?;
        }
        step.commit()?;
    }
    Ok(Migrated { from, to: NEWEST })
}
