//! `rdq migrate`: the storage's schema is prepared, and nothing is served. How is the plugin's own.

use crate::{config::MigrateArgs, server::ServeError};
use rdq_spi::Migrated;

/// A storage that is ready for this version of rdq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// Its URL, without secrets.
    pub storage: String,
    /// What was done to its schema.
    pub schema: Migrated,
}

/// Prepares the storage that the options name.
pub async fn migrate(args: MigrateArgs) -> Result<Prepared, ServeError> {
    let url = args.storage()?;
    let schema = rdq_store::migrate(&url).await?;
    Ok(Prepared { storage: rdq_store::redact(&url), schema })
}
