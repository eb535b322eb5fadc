//! `rdq serve`: the daemon in this process, and its log on standard error. What it serves is the
//! daemon's business.

use crate::errors::{CliError, Outcome};
use rdq_daemon::ServeArgs;
use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;

/// The environment variable that chooses what is logged.
const LOG: &str = "RDQ_LOG";
const LOG_DEFAULT: &str = "info";

/// Runs `rdq serve`, until a signal ends it.
pub(crate) async fn serve(args: ServeArgs) -> Result<Outcome, CliError> {
    log()?;
    rdq_daemon::serve(args).await.map_err(CliError::Serve)?;
    Ok(Outcome::Done)
}

/// Logs on standard error, as the environment says.
pub(crate) fn log() -> Result<(), CliError> {
    let directives = std::env::var(LOG).unwrap_or_else(|_| LOG_DEFAULT.to_owned());
    let filter = EnvFilter::try_new(&directives)
        .map_err(|error| CliError::Usage(format!("{LOG}={directives}: {error}")))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(())
}
