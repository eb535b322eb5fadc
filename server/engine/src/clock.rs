//! The engine's only clock, and for waiting only: what is due and what has lapsed is decided by
//! the storage's. Tests pause it.

use std::time::Duration;
use tokio::time::Sleep;

pub(crate) use tokio::time::Instant;

/// A claim loop looks again after this, whatever it was told.
pub(crate) const TIMER_MAX: Duration = Duration::from_secs(3_600);
/// No interval is longer, so that arithmetic on it cannot overflow.
const INTERVAL_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

#[expect(clippy::disallowed_methods, reason = "this is the engine's waiting clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn sleep(duration: Duration) -> Sleep {
    tokio::time::sleep(duration)
}

pub(crate) fn sleep_until(instant: Instant) -> Sleep {
    tokio::time::sleep_until(instant)
}

/// The duration, up to `share` of it shorter or longer, so that servers do not march in step.
pub(crate) fn jittered(duration: Duration, share: f64) -> Duration {
    duration.min(INTERVAL_MAX).mul_f64(1.0 + share * (2.0 * fastrand::f64() - 1.0))
}
