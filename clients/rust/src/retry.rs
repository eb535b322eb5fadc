//! What is retried, and when: full-jitter backoff within a deadline. Pure but for the dice.

use crate::Error;
use std::time::Duration;

/// Between the tries of a call, and of an outcome.
pub(crate) const CALLS: Range = Range { first: ms(100), most: ms(5_000) };
/// Between the streams of a worker.
pub(crate) const STREAMS: Range = Range { first: ms(100), most: ms(10_000) };

/// Between the tries to acquire a lock that another holds.
pub(crate) const LOCKS: Range = Range { first: ms(100), most: ms(1_000) };
/// Between the claims of a relay that found nothing.
pub(crate) const IDLE: Range = Range { first: ms(100), most: ms(2_000) };

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How long to wait at most, before the first repetition and ever.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    first: Duration,
    most: Duration,
}

/// Waiting times that grow.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    range: Range,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(range: Range) -> Self {
        Self { range, failures: 0 }
    }

    /// The next waiting time: anything up to a bound that doubles each time.
    pub(crate) fn next(&mut self) -> Duration {
        self.next_with(fastrand::f64())
    }

    /// The same, with the dice, from 0 to 1, as an argument.
    fn next_with(&mut self, dice: f64) -> Duration {
        let doublings = self.failures.min(31);
        self.failures = self.failures.saturating_add(1);
        self.range.most.min(self.range.first.saturating_mul(1 << doublings)).mul_f64(dice)
    }

    /// The next waiting time after this failure: no less than the server asks for.
    pub(crate) fn next_after(&mut self, error: &Error) -> Duration {
        self.next().max(error.retry_after().unwrap_or_default())
    }

    /// Back to the start.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How long to wait after this failure of a call; none if it is the call's answer: since repeating
/// does not help, or since there is no time left for that.
pub(crate) fn wait_after(error: &Error, backoff: &mut Backoff, left: Duration) -> Option<Duration> {
    // Of a try that was late only the try has ended, not the call.
    if !error.is_retryable() {
        return None;
    }
    let wait = backoff.next_after(error);
    (wait < left).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdq_proto::{ERROR_DOMAIN, v1::ErrorReason};
    use tonic::{Code, Status};
    use tonic_types::{ErrorDetails, StatusExt as _};

    const LEFT: Duration = Duration::from_secs(30);

    #[test]
    fn the_bound_doubles_up_to_the_most_and_starts_again() {
        let mut backoff = Backoff::new(CALLS);
        let bounds: Vec<_> = (0..8).map(|_| backoff.next_with(1.0).as_millis()).collect();
        assert_eq!(bounds, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        backoff.reset();
        assert_eq!(backoff.next_with(1.0), ms(100));
    }

    #[test]
    fn the_jitter_is_full_and_no_number_of_failures_overflows() {
        let mut backoff = Backoff { range: STREAMS, failures: u32::MAX };
        assert_eq!(backoff.next_with(0.0), Duration::ZERO);
        assert_eq!(backoff.next_with(0.5), ms(5_000));
        assert_eq!(backoff.next_with(1.0), ms(10_000));
    }

    #[test]
    fn a_server_that_names_a_time_is_not_asked_before_and_not_at_all_if_that_is_too_late() {
        let overloaded = |after| {
            let mut details = ErrorDetails::with_error_info("OVERLOADED", ERROR_DOMAIN, []);
            details.set_retry_info(Some(after));
            Error::from(Status::with_error_details(Code::ResourceExhausted, "", details))
        };
        let mut backoff = Backoff::new(CALLS);
        let wait = wait_after(&overloaded(ms(7_000)), &mut backoff, LEFT);
        assert_eq!(wait, Some(ms(7_000)));
        assert_eq!(wait_after(&overloaded(LEFT), &mut backoff, LEFT), None);
    }

    #[test]
    fn a_try_that_was_late_is_repeated_and_a_refusal_is_not() {
        let mut backoff = Backoff::new(CALLS);
        assert!(wait_after(&Error::timed_out(), &mut backoff, LEFT).is_some());
        let refused = Error::local(ErrorReason::NotFound, Code::NotFound, "");
        assert_eq!(wait_after(&refused, &mut backoff, LEFT), None);
    }
}
