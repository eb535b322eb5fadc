//! The latest instant of the storage's clock that this handle has seen. No clock is read here: the
//! server's is, in its commands.

use rdq_spi::Timestamp;
use std::sync::atomic::{AtomicI64, Ordering};

/// It never runs backwards, even where the server's does.
#[derive(Debug)]
pub(crate) struct Clock(AtomicI64);

impl Default for Clock {
    fn default() -> Self {
        Self(AtomicI64::new(Timestamp::MIN.millis()))
    }
}

impl Clock {
    /// The server said this: the instant that counts is that, or the latest one seen.
    pub(crate) fn advance(&self, said: Timestamp) -> Timestamp {
        let latest = self.0.fetch_max(said.millis(), Ordering::AcqRel);
        Timestamp::from_millis(latest.max(said.millis()))
    }

    /// The latest instant seen.
    pub(crate) fn latest(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_clock_was_set_back_is_not_believed() {
        let clock = Clock::default();
        let at = Timestamp::from_millis;
        assert_eq!([10, 5, 12].map(|said| clock.advance(at(said))), [at(10), at(10), at(12)]);
        assert_eq!(clock.latest(), at(12));
    }
}
