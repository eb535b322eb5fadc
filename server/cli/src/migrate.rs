//! `rdq migrate`: prepares a database, and says what became of it. How is the daemon's business.

use crate::{
    errors::{CliError, Outcome},
    output::{self, Format},
    serve,
};
use clap::Args;
use rdq_daemon::{MigrateArgs, Prepared};
use rdq_spi::Migrated;

/// Prepare a database without serving
#[derive(Debug, Args)]
#[command(
    after_help = "Makes the schema, or brings an older one to the version of this rdq; one that is newer is refused
and left as it is. `rdq serve` does the same when it starts: this is for a pipeline that changes
schemas before it starts servers, or where those may not change them. It can be run again, many
times at once and beside servers.

Examples:
  rdq migrate
  rdq migrate --storage postgres://owner@db7/tasks
  rdq migrate --config /etc/rdq.yaml --output json"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    storage: MigrateArgs,
    /// Who reads the output: people (table) or programs (json)
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    pub(crate) output: Format,
}

/// Runs `rdq migrate`.
pub(crate) async fn migrate(args: Arguments) -> Result<Outcome, CliError> {
    serve::log()?;
    let prepared = rdq_daemon::migrate(args.storage).await.map_err(CliError::Serve)?;
    match args.output {
        Format::Table => output::text(&told(&prepared))?,
        Format::Json => {
            let Prepared { storage, schema } = prepared;
            let (from, to) = (schema.from, schema.to);
            output::json(&serde_json::json!({ "storage": storage, "from": from, "to": to }))?;
        }
    }
    Ok(Outcome::Done)
}

fn told(prepared: &Prepared) -> String {
    let Prepared { storage, schema: Migrated { from, to } } = prepared;
    match from {
        None => format!("{storage}: made the schema, version {to}"),
        Some(from) if from == to => format!("{storage}: the schema has version {to} already"),
        Some(from) => format!("{storage}: brought the schema from version {from} to {to}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told() {
        for (from, expected) in [
            (None, "sqlite:a: made the schema, version 3"),
            (Some(3), "sqlite:a: the schema has version 3 already"),
            (Some(1), "sqlite:a: brought the schema from version 1 to 3"),
        ] {
            let storage = "sqlite:a".to_owned();
            let prepared = Prepared { storage, schema: Migrated { from, to: 3 } };
            assert_eq!(told(&prepared), expected);
        }
    }
}
