//! The numbers by which storages keep what has a name here. They never change their meaning: files,
//! tables and scripts hold them. Pure.

use crate::{AttemptOutcome, Call, TaskStatus};
use std::time::Duration;

impl TaskStatus {
    const ALL: [Self; 5] =
        [Self::Pending, Self::InFlight, Self::Succeeded, Self::Dead, Self::Cancelled];

    /// Its number, from 0.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The status of this number, if there is one.
    pub fn of_number(number: impl Into<i64>) -> Option<Self> {
        of_number(&Self::ALL, number.into())
    }
}

impl AttemptOutcome {
    const ALL: [Self; 5] = [
        Self::Success,
        Self::RetryableFailure,
        Self::PermanentFailure,
        Self::LeaseExpired,
        Self::Cancelled,
    ];

    /// Its number, from 1: 0 is left for none.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The outcome of this number, if there is one.
    pub fn of_number(number: u8) -> Option<Self> {
        of_number(&Self::ALL, i64::from(number) - 1)
    }
}

impl Call {
    const ALL: [Self; 5] =
        [Self::Complete, Self::Reschedule, Self::DeadLetter, Self::Fail, Self::Release];

    /// Its number, from 1: 0 is left for none.
    pub fn number(self) -> u8 {
        self as u8 + 1
    }

    /// The call of this number, if there is one.
    pub fn of_number(number: i64) -> Option<Self> {
        of_number(&Self::ALL, number.checked_sub(1)?)
    }
}

fn of_number<T: Copy>(all: &[T], number: i64) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

/// A duration as one number: nanoseconds; below zero, seconds, for what would not fit.
pub fn duration_number(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos())
        .unwrap_or_else(|_| -i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))
}

/// The duration of such a number.
pub fn duration_of_number(number: i64) -> Duration {
    match u64::try_from(number) {
        Ok(nanos) => Duration::from_nanos(nanos),
        Err(_) => Duration::from_secs(number.unsigned_abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_numbers() {
        let named = [
            (0, TaskStatus::Pending),
            (1, TaskStatus::InFlight),
            (2, TaskStatus::Succeeded),
            (3, TaskStatus::Dead),
            (4, TaskStatus::Cancelled),
        ];
        for (number, status) in named {
            assert_eq!((status.number(), TaskStatus::of_number(number)), (number, Some(status)));
        }
        assert_eq!((TaskStatus::of_number(5), TaskStatus::of_number(-1)), (None, None));
    }

    #[test]
    fn outcomes_and_calls_have_numbers_above_zero() {
        let outcomes = [
            (1, AttemptOutcome::Success),
            (2, AttemptOutcome::RetryableFailure),
            (3, AttemptOutcome::PermanentFailure),
            (4, AttemptOutcome::LeaseExpired),
            (5, AttemptOutcome::Cancelled),
        ];
        for (number, outcome) in outcomes {
            assert_eq!(outcome.number(), number);
            assert_eq!(AttemptOutcome::of_number(number), Some(outcome));
        }
        let calls = [
            (1, Call::Complete),
            (2, Call::Reschedule),
            (3, Call::DeadLetter),
            (4, Call::Fail),
            (5, Call::Release),
        ];
        for (number, call) in calls {
            assert_eq!((call.number(), Call::of_number(number.into())), (number, Some(call)));
        }
        for none in [0, 6, u8::MAX] {
            assert_eq!(AttemptOutcome::of_number(none), None);
            assert_eq!(Call::of_number(none.into()), None);
        }
        assert_eq!((Call::of_number(-1), Call::of_number(i64::MIN)), (None, None));
    }

    #[test]
    fn durations_keep_their_nanoseconds_where_they_fit() {
        for (given, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (Duration::from_nanos(1_500_000_001), Duration::from_nanos(1_500_000_001)),
            (Duration::new(315_576_000_000, 5), Duration::from_secs(315_576_000_000)),
            (Duration::MAX, Duration::from_secs(i64::MAX.unsigned_abs())),
        ] {
            assert_eq!(duration_of_number(duration_number(given)), expected);
        }
    }
}
