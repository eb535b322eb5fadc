//! Rates and percentiles, as `rdq bench` reports them.

use serde::{Deserialize, Serialize};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Between two calls of a rested measurement everything comes to rest, as in `rdq bench`.
pub(crate) const REST: Duration = Duration::from_millis(5);

/// What a measurement found. The names are those of `rdq bench --output json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// How many calls, commits or lives.
    pub(crate) count: u64,
    /// For how long.
    pub(crate) seconds: f64,
    /// How many in a second; unset where rests are part of the measurement.
    pub(crate) per_second: Option<f64>,
    /// Half took no longer, in microseconds.
    pub(crate) p50_us: Option<u32>,
    /// 99 in 100 took no longer, in microseconds.
    pub(crate) p99_us: Option<u32>,
}

impl Measured {
    /// From single latencies; `rested` ones have no rate.
    pub(crate) fn new(count: usize, start: Instant, mut latencies: Vec<u32>, rested: bool) -> Self {
        let seconds = start.elapsed().as_secs_f64();
        latencies.sort_unstable();
        let percentile = |percent: usize| {
            let rank = (latencies.len() * percent).div_ceil(100);
            latencies.get(rank.saturating_sub(1)).copied()
        };
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let per_second = (!rested).then(|| count as f64 / seconds);
        Self {
            count: count as u64,
            seconds,
            per_second,
            p50_us: percentile(50),
            p99_us: percentile(99),
        }
    }
}

impl Measured {
    /// The better of two rounds: what else the machine does only ever makes one worse.
    pub(crate) fn better(self, other: Self) -> Self {
        let is_better = match (self.per_second, other.per_second) {
            (Some(this), Some(that)) => this >= that,
            _ => self.p50_us <= other.p50_us,
        };
        if is_better { self } else { other }
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.per_second.map_or_else(|| "-".into(), |rate| format!("{rate:.0}/s"));
        let micros = |us: Option<u32>| us.map_or_else(|| "-".into(), |us| format!("{us} us"));
        write!(f, "{rate:>10}  p50 {:>8}  p99 {:>8}", micros(self.p50_us), micros(self.p99_us))
    }
}

/// The clock of the measurements.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures how long something took")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// How long since then, in microseconds.
pub(crate) fn micros_since(start: Instant) -> u32 {
    u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX)
}
