//! Runs the schedules of the storage, or stands by while another server does.

use crate::convert;
use rdq_engine::{Engine, RunSchedulesError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// After the storage failed.
const AGAIN: Duration = Duration::from_secs(1);

/// Returns when the engine ends, or at once where the storage has no schedules.
pub(crate) async fn run(engine: Engine) {
    if !engine.has_schedules() {
        return;
    }
    let mut failing = false;
    loop {
        match engine.run_schedules(convert::boundary_task, CancellationToken::new()).await {
            Ok(()) => return,
            Err(RunSchedulesError::LeadershipLost) => {
                failing = false;
                tracing::warn!("this server ran the schedules, and now stands by");
            }
            Err(RunSchedulesError::Engine(error)) => {
                // Once, not every second of an outage.
                if !failing {
                    tracing::warn!(%error, "schedules are not run; trying again");
                }
                failing = true;
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
