//! Load and its measure: callers that each wait for their answer before the next call, rates,
//! percentiles, and an end to waiting for a server that has stopped answering.

use crate::errors::CliError;
use indicatif::ProgressBar;
use serde::Serialize;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Nothing at all is answered for so long: the measurement has failed.
const STALL: Duration = Duration::from_secs(30);

/// Progress is drawn this often, beside the measurement and never by it.
const DRAW: Duration = Duration::from_millis(200);

/// What a measurement found.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Measured {
    /// How many calls, lives or pick-ups.
    pub(super) count: u64,
    /// For how long.
    pub(super) seconds: f64,
    /// How many in a second; unset where idle time is part of the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) per_second: Option<f64>,
    /// Half took no longer, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p50_us: Option<u32>,
    /// 99 in 100 took no longer, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) p99_us: Option<u32>,
}

impl Measured {
    /// Throughput, with the latencies of single calls where there are any.
    pub(super) fn rate(count: u64, elapsed: Duration, latencies: Vec<u32>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let per_second = count as f64 / elapsed.as_secs_f64();
        Self { per_second: Some(per_second), ..Self::latency(count, elapsed, latencies) }
    }

    /// Latencies alone.
    pub(super) fn latency(count: u64, elapsed: Duration, mut latencies: Vec<u32>) -> Self {
        latencies.sort_unstable();
        Self {
            count,
            seconds: elapsed.as_secs_f64(),
            per_second: None,
            p50_us: percentile(&latencies, 50),
            p99_us: percentile(&latencies, 99),
        }
    }
}

/// The smallest value that so many in a hundred do not exceed.
fn percentile(sorted: &[u32], percent: usize) -> Option<u32> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The one clock of the measurements.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures how long something took")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// How long since then, in microseconds.
pub(super) fn micros_since(start: Instant) -> u32 {
    u32::try_from(start.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// Lets `callers` call until there were `total` rounds; a round is `calls` calls and its latency
/// is that of all of them.
pub(super) async fn closed_loop<F, Fut>(
    callers: u32,
    total: u64,
    calls: u64,
    bar: &ProgressBar,
    round: F,
) -> Result<Measured, CliError>
where
    F: Fn(u32) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Result<(), CliError>> + Send,
{
    let started = Arc::new(AtomicU64::new(0));
    let finished = Arc::new(AtomicU64::new(0));
    let start = now();
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let (started, finished) = (started.clone(), finished.clone());
        let round = round.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while started.fetch_add(1, Relaxed) < total {
                let start = now();
                round(caller).await?;
                latencies.push(micros_since(start));
                finished.fetch_add(1, Relaxed);
            }
            Ok::<_, CliError>(latencies)
        });
    }
    let all = async {
        let mut latencies = Vec::new();
        while let Some(joined) = tasks.join_next().await {
            latencies.extend(joined.map_err(|error| CliError::Malformed(error.to_string()))??);
        }
        Ok(latencies)
    };
    let latencies = watched(all, &finished, bar).await?;
    Ok(Measured::rate(total * calls, start.elapsed(), latencies))
}

/// Waits for `work`, draws how far it is, and gives up when it stands still.
pub(super) async fn watched<T>(
    work: impl Future<Output = Result<T, CliError>>,
    finished: &AtomicU64,
    bar: &ProgressBar,
) -> Result<T, CliError> {
    let watch = async {
        let mut before = 0;
        let mut still = Duration::ZERO;
        while still < STALL {
            tokio::time::sleep(DRAW).await;
            let position = finished.load(Relaxed);
            bar.set_position(position);
            still = if position == before { still + DRAW } else { Duration::ZERO };
            before = position;
        }
    };
    tokio::select! {
        result = work => result,
        () = watch => Err(CliError::Cut("the measurement stood still and")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_values_and_never_interpolated() {
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 50), Some(50));
        assert_eq!(percentile(&hundred, 99), Some(99));
        assert_eq!(percentile(&[7], 99), Some(7));
        assert_eq!(percentile(&[], 99), None);
    }

    #[tokio::test]
    async fn a_closed_loop_makes_exactly_the_rounds_it_was_told() {
        let rounds = Arc::new(AtomicU64::new(0));
        let counter = rounds.clone();
        let bar = ProgressBar::hidden();
        let measured = closed_loop(8, 100, 2, &bar, move |_| {
            let counter = counter.clone();
            async move {
                counter.fetch_add(1, Relaxed);
                Ok(())
            }
        });
        assert_eq!(measured.await.unwrap().count, 200);
        assert_eq!(rounds.load(Relaxed), 100);
    }
}
