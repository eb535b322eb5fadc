//! What a server must be before it is trusted with tasks: durable, writable, of a version that has
//! what the schema needs, and spoken to directly.

use crate::{
    config::{OpenError, PostgresOptions},
    errors::Sql,
    pool,
};
use sqlx::{Connection as _, PgConnection, Row as _};

/// The oldest version, as `server_version_num` has it.
const VERSION_MIN: i32 = 140_000;

/// Refuses a server that would lose what it acknowledged.
pub(crate) async fn check_server(db: &mut PgConnection) -> Result<(), OpenError> {
    let row = sqlx::query(include_str!("queries/server.sql")).fetch_one(db).await?;
    if row.try_get::<i32, _>("version")? < VERSION_MIN {
        return Err(OpenError::Version { found: row.try_get("version_name")? });
    }
    for (setting, needed) in [
        // Without it an operating system's crash loses anything.
        ("fsync", "on"),
        // On a standby, or where an administrator said so, nothing can be written.
        ("pg_is_in_recovery", "off"),
        ("default_transaction_read_only", "off"),
        ("server_encoding", "UTF8"),
    ] {
        let value: String = row.try_get(setting)?;
        if value != needed {
            return Err(OpenError::Setting { setting, value, needed });
        }
    }
    if row.try_get::<String, _>("full_page_writes")? != "on" {
        tracing::warn!(
            "the server has full_page_writes = off: unless its file system writes whole pages, a \
             power cut can damage tables"
        );
    }
    Ok(())
}

/// Refuses a pooler that gives each transaction another session: settings and LISTEN would be lost.
pub(crate) async fn check_sessions(
    first: &mut PgConnection,
    options: &PostgresOptions,
) -> Result<(), OpenError> {
    let before = session(first).await?;
    let mut second = pool::connect(options).await?;
    // Holds the session that the first one let go, if it did.
    let mut held = second.begin().await?;
    let other = session(&mut held).await?;
    let after = session(first).await?;
    held.rollback().await?;
    second.close().await?;
    if before == other || before != after {
        return Err(OpenError::Pooler { evidence: "the session changed between two statements" });
    }
    Ok(())
}

async fn session(db: &mut PgConnection) -> Sql<i32> {
    sqlx::query("SELECT pg_backend_pid() AS session").fetch_one(db).await?.try_get("session")
}
