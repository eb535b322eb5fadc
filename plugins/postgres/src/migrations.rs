//! Brings a schema to the newest version. Versioned, idempotent, and safe with many servers starting
//! at once: one transaction, under a lock of the schema's own, that looks at what is there first.

use crate::config::OpenError;
use rdq_spi::Migrated;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _, raw_sql};

/// Every change, in order; the version is the count. A released one is never edited.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_tasks.sql"),
    include_str!("../migrations/0002_histories.sql"),
    include_str!("../migrations/0003_admission.sql"),
    include_str!("../migrations/0004_claims.sql"),
    include_str!("../migrations/0005_holding.sql"),
    include_str!("../migrations/0006_dead_letters.sql"),
    include_str!("../migrations/0007_maintenance.sql"),
    include_str!("../migrations/0008_contract.sql"),
    include_str!("../migrations/0009_plans.sql"),
    include_str!("../migrations/0010_unfinished.sql"),
    include_str!("../migrations/0011_admission.sql"),
    include_str!("../migrations/0012_claims.sql"),
    include_str!("../migrations/0013_holding.sql"),
    include_str!("../migrations/0014_finished.sql"),
    include_str!("../migrations/0015_plans.sql"),
    include_str!("../migrations/0020_coordination.sql"),
    include_str!("../migrations/0021_ledger.sql"),
];

/// The newest version.
#[allow(clippy::cast_possible_truncation, reason = "a count of files")]
pub(crate) const NEWEST: u32 = MIGRATIONS.len() as u32;

/// Applies what is missing. The namespace is a plain name, and stands in the search path.
pub(crate) async fn migrate(db: &mut PgConnection, namespace: &str) -> Result<Migrated, OpenError> {
    // Most servers start on a schema that is the newest, and need no right to change it.
    if version(db, namespace).await? == Some(NEWEST) {
        return Ok(Migrated { from: Some(NEWEST), to: NEWEST });
    }
    let mut step = db.begin().await?;
    // Others may hold it for as long as a migration takes.
    step.execute("SET LOCAL lock_timeout = 0").await?;
    step.execute("SET LOCAL statement_timeout = 0").await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('rdq migration of ' || $1, 0))")
        .bind(namespace)
        .execute(&mut *step)
        .await?;
    // Another server may have been faster.
    let from = version(&mut step, namespace).await?;
    if from.is_none() {
        let sql = format!(
            "CREATE SCHEMA IF NOT EXISTS {namespace};
            CREATE TABLE {namespace}.schema_version (
                one boolean PRIMARY KEY DEFAULT true CHECK (one),
                version integer NOT NULL
            );
            INSERT INTO {namespace}.schema_version (version) VALUES (0);"
        );
        raw_sql(AssertSqlSafe(sql)).execute(&mut *step).await?;
    }
    for migration in MIGRATIONS.iter().skip(from.unwrap_or(0) as usize) {
        raw_sql(*migration).execute(&mut *step).await?;
    }
    let newest = i64::from(NEWEST);
    sqlx::query("UPDATE schema_version SET version = $1").bind(newest).execute(&mut *step).await?;
    step.commit().await?;
    Ok(Migrated { from, to: NEWEST })
}

/// The schema's version; `None` if there is nothing in it. Refuses what is not ours or too new.
async fn version(db: &mut PgConnection, namespace: &str) -> Result<Option<u32>, OpenError> {
    let row = sqlx::query(include_str!("queries/schema.sql")).bind(namespace).fetch_one(&mut *db);
    let row = row.await?;
    let (is_ours, is_empty): (bool, bool) = (row.try_get("is_ours")?, row.try_get("is_empty")?);
    if !is_ours && is_empty {
        return Ok(None);
    }
    if !is_ours {
        return Err(OpenError::Foreign { namespace: namespace.to_owned() });
    }
    let row = sqlx::query("SELECT version FROM schema_version").fetch_one(db).await?;
    let found: i32 = row.try_get("version")?;
    match u32::try_from(found) {
        Ok(version) if version <= NEWEST => Ok(Some(version)),
        _ => Err(OpenError::NewerSchema { found, known: NEWEST }),
    }
}
