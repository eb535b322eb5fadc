//! When a failed attempt may run again. Pure: no clock, no storage; the caller brings the die.

use std::time::Duration;

/// A queue's retry policy, or a task's own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RetryPolicy {
    /// At least 1.
    pub(crate) max_attempts: u32,
    pub(crate) initial_backoff: Duration,
    /// At least 1.
    pub(crate) multiplier: f64,
    pub(crate) max_backoff: Duration,
    /// From 0 to 1.
    pub(crate) jitter: f64,
}

impl RetryPolicy {
    /// The delay after failed attempt `attempt`, or `None` if that was the last one. `die` is even
    /// over 0 to 1.
    pub(crate) fn delay_after(&self, attempt: u32, die: f64) -> Option<Duration> {
        (attempt < self.max_attempts).then(|| self.backoff(attempt.max(1), die))
    }

    fn backoff(&self, attempt: u32, die: f64) -> Duration {
        // The power may be infinite; the cap makes it finite again.
        let grown =
            self.initial_backoff.as_secs_f64() * self.multiplier.powf(f64::from(attempt - 1));
        let capped = grown.min(self.max_backoff.as_secs_f64());
        let spread = 1.0 + self.jitter * (2.0 * die - 1.0);
        Duration::try_from_secs_f64(capped * spread.max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    fn policy() -> RetryPolicy {
        RetryPolicy {
            max_attempts: u32::MAX,
            initial_backoff: secs(1),
            multiplier: 2.0,
            max_backoff: secs(600),
            jitter: 0.0,
        }
    }

    #[test]
    fn delay_grows_up_to_the_cap_and_then_ends() {
        let policy = RetryPolicy { max_attempts: 12, ..policy() };
        for (attempt, expected) in [
            (1, Some(secs(1))),
            (2, Some(secs(2))),
            (10, Some(secs(512))),
            (11, Some(secs(600))), // 1,024 s, capped
            (12, None),            // the last attempt
            (u32::MAX, None),
        ] {
            assert_eq!(policy.delay_after(attempt, 0.5), expected, "after attempt {attempt}");
        }
    }

    #[test]
    fn extremes_saturate_and_never_go_below_zero() {
        let huge = RetryPolicy {
            initial_backoff: Duration::MAX,
            max_backoff: Duration::MAX,
            multiplier: 1_000.0,
            jitter: 1.0,
            ..policy()
        };
        assert_eq!(huge.delay_after(1_000_000, 1.0), Some(Duration::MAX));
        assert_eq!(huge.delay_after(1, 0.0), Some(Duration::ZERO));
        let flat = RetryPolicy { multiplier: 1.0, ..policy() };
        assert_eq!(flat.delay_after(u32::MAX - 1, 0.5), Some(secs(1)));
        let inverted = RetryPolicy { max_backoff: secs(3), initial_backoff: secs(9), ..policy() };
        assert_eq!(inverted.delay_after(1, 0.5), Some(secs(3)));
    }

    #[test]
    fn jitter_spreads_evenly_around_the_delay() {
        let policy = RetryPolicy { jitter: 0.2, initial_backoff: secs(10), ..policy() };
        for (die, expected) in [(0.0, 8.0), (0.5, 10.0), (1.0, 12.0)] {
            let delay = policy.delay_after(1, die).unwrap_or_default().as_secs_f64();
            assert!((delay - expected).abs() < 1e-6, "{die}: {delay}");
        }
    }
}
