//! The storage's clock: the only place of this crate that reads time. It ticks in milliseconds.

use rdq_spi::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Wall time at its creation, and tokio's monotone time from there on: it never runs backwards, and
/// a simulation with paused time moves it.
#[derive(Debug)]
pub(crate) struct Clock {
    base: Timestamp,
    started: Instant,
}

impl Clock {
    #[allow(clippy::disallowed_methods, reason = "this is the storage's clock")]
    pub(crate) fn start() -> Self {
        // A host before 1970 counts from there.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
        Self { base: Timestamp::from_millis(millis), started: Instant::now() }
    }

    #[allow(clippy::disallowed_methods, reason = "this is the storage's clock")]
    pub(crate) fn now(&self) -> Timestamp {
        let elapsed = Instant::now().saturating_duration_since(self.started);
        let millis = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.base.millis().saturating_add(millis))
    }

    /// Returns when the clock has reached `at`.
    pub(crate) async fn reach(&self, at: Timestamp) {
        let since_start: Duration = at.since(self.base);
        match self.started.checked_add(since_start) {
            Some(instant) => tokio::time::sleep_until(instant).await,
            None => std::future::pending().await,
        }
    }
}
