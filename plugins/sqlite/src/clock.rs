//! The storage's clock: the host's, made monotone by what the store remembers of it. It is the one
//! place of this crate that reads time, and it decides nothing.

use rdq_spi::Timestamp;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What the store remembers of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// The storage's now, in milliseconds since the epoch.
    pub(crate) now: i64,
    /// The host's now when that was.
    pub(crate) host_now: i64,
}

impl Clock {
    /// The clock now. If the host's clock was set back, the storage's goes on at half speed until
    /// the host has caught up: it never runs backwards, and what waits is late but not stuck.
    pub(crate) fn advanced_to(self, host_now: i64) -> Self {
        if host_now >= self.now {
            return Self { now: host_now, host_now };
        }
        let passed = host_now - self.host_now;
        if passed < 0 {
            return Self { host_now, ..self };
        }
        // The odd millisecond stays for the next time, so that frequent readings do not stop it.
        Self { now: self.now + passed / 2, host_now: host_now - passed % 2 }
    }

    /// The clock now, by the host's clock.
    pub(crate) fn advanced(self) -> Self {
        self.advanced_to(host_now())
    }

    /// The storage's now.
    pub(crate) fn timestamp(self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }
}

#[allow(clippy::disallowed_methods, reason = "the host's clock is what the storage's is made of")]
fn host_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A moment, by the host's monotone clock. For measuring only: it decides nothing of tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(Instant);

impl Mark {
    /// Now.
    #[allow(clippy::disallowed_methods, reason = "for measuring only")]
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    /// How long after `earlier` it is.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }
}

/// The end of a wait, by the host's monotone clock. For waiting only: it decides nothing of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// So long from now.
    #[allow(clippy::disallowed_methods, reason = "for waiting only")]
    pub(crate) fn after(wait: Duration) -> Self {
        Self(Instant::now().checked_add(wait))
    }

    /// Whether it is over.
    #[allow(clippy::disallowed_methods, reason = "for waiting only")]
    pub(crate) fn has_passed(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_host_and_never_runs_backwards() {
        let clock = Clock { now: 1_000, host_now: 1_000 };
        assert_eq!(clock.advanced_to(1_500), Clock { now: 1_500, host_now: 1_500 });
        assert_eq!(clock.advanced_to(400), Clock { now: 1_000, host_now: 400 });
    }

    #[test]
    fn after_a_jump_back_it_goes_on_at_half_speed_until_the_host_has_caught_up() {
        let mut clock = Clock { now: 1_000, host_now: 1_000 }.advanced_to(400);
        for host_now in 401..=500 {
            clock = clock.advanced_to(host_now);
        }
        assert_eq!(clock.now, 1_050);
        assert_eq!(clock.advanced_to(2_000).now, 2_000);
    }
}
