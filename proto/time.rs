//! Instants and durations of the wire, without panics. No clock is read here, and what a value means
//! is for the caller to say.

use prost_types::{Duration as WireDuration, Timestamp as WireTimestamp};
use std::time::Duration;

const NANOS: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// About 10,000 years: the range of `google.protobuf.Duration`.
const DURATION_SECONDS_MAX: i64 = 315_576_000_000;
/// The years 1 to 9999: the range of `google.protobuf.Timestamp`.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The instant so many milliseconds after the Unix epoch, cut to the range of the wire.
pub fn timestamp(millis: i64) -> WireTimestamp {
    let seconds = millis.div_euclid(1000);
    if seconds < *TIMESTAMP_SECONDS.start() {
        return WireTimestamp { seconds: *TIMESTAMP_SECONDS.start(), nanos: 0 };
    }
    if seconds > *TIMESTAMP_SECONDS.end() {
        return WireTimestamp { seconds: *TIMESTAMP_SECONDS.end(), nanos: 999_000_000 };
    }
    let nanos = i32::try_from(millis.rem_euclid(1000) * 1_000_000).unwrap_or(0);
    WireTimestamp { seconds, nanos }
}

/// Milliseconds since the Unix epoch, rounded up; `None` if the instant is out of its range.
pub fn millis(timestamp: &WireTimestamp) -> Option<i64> {
    if !TIMESTAMP_SECONDS.contains(&timestamp.seconds)
        || !(0..1_000_000_000).contains(&timestamp.nanos)
    {
        return None;
    }
    let millis = i64::from(timestamp.nanos).div_euclid(1_000_000);
    let up = i64::from(timestamp.nanos % 1_000_000 > 0);
    Some(timestamp.seconds * 1000 + millis + up)
}

/// The duration on the wire, cut to its range.
pub fn duration(duration: Duration) -> WireDuration {
    match i64::try_from(duration.as_secs()) {
        Ok(seconds) if seconds < DURATION_SECONDS_MAX => {
            WireDuration { seconds, nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0) }
        }
        _ => WireDuration { seconds: DURATION_SECONDS_MAX, nanos: 0 },
    }
}

/// Nanoseconds, below zero too; `None` if the duration is out of its range or its parts disagree
/// in sign.
pub fn nanos(duration: &WireDuration) -> Option<i128> {
    let (seconds, nanos) = (duration.seconds, duration.nanos);
    let in_range = seconds.unsigned_abs() <= DURATION_SECONDS_MAX.unsigned_abs()
        && nanos.unsigned_abs() < 1_000_000_000
        && (seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0));
    in_range.then(|| i128::from(seconds) * NANOS + i128::from(nanos))
}

/// The duration, zero if it is below zero; `None` as for [`nanos`].
pub fn at_least_zero(duration: &WireDuration) -> Option<Duration> {
    let nanos = nanos(duration)?.max(0);
    let seconds = u64::try_from(nanos / NANOS).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos % NANOS).ok()?))
}

/// Whole milliseconds, rounded away from zero; `None` as for [`nanos`].
pub fn duration_millis(duration: &WireDuration) -> Option<i64> {
    let nanos = nanos(duration)?;
    let up = i128::from(nanos % NANOS_PER_MILLI != 0) * nanos.signum();
    i64::try_from(nanos / NANOS_PER_MILLI + up).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_go_there_and_back_and_finer_ones_are_rounded_up() {
        for at in [0, 1, -1, 1_700_000_000_123, -62_135_596_800_000, 253_402_300_799_999] {
            assert_eq!(millis(&timestamp(at)), Some(at));
        }
        assert_eq!(timestamp(i64::MAX), timestamp(253_402_300_799_999));
        assert_eq!(timestamp(i64::MIN), timestamp(-62_135_596_800_000));
        let at = |seconds, nanos| millis(&WireTimestamp { seconds, nanos });
        assert_eq!(at(1, 1), Some(1001));
        assert_eq!(at(-1, 999_000_001), Some(0));
        for (seconds, nanos) in [(0, -1), (0, i32::MAX), (i64::MIN, 0), (i64::MAX, 0)] {
            assert_eq!(at(seconds, nanos), None);
        }
    }

    #[test]
    fn durations_go_there_and_back_and_nothing_overflows() {
        for span in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(86_399_999)] {
            assert_eq!(at_least_zero(&duration(span)), Some(span));
        }
        let most = duration(Duration::MAX);
        assert_eq!(at_least_zero(&most), Some(Duration::from_secs(315_576_000_000)));
        let wire = |seconds, nanos| WireDuration { seconds, nanos };
        assert_eq!(at_least_zero(&wire(-1, -5)), Some(Duration::ZERO));
        assert_eq!(duration_millis(&wire(-1, -1)), Some(-1001));
        assert_eq!(duration_millis(&wire(0, 1)), Some(1));
        for (seconds, nanos) in [(i64::MIN, 0), (i64::MAX, 0), (0, i32::MIN), (1, -1), (-1, 1)] {
            assert_eq!(nanos_of(seconds, nanos), None);
        }
    }

    fn nanos_of(seconds: i64, nanos: i32) -> Option<i128> {
        super::nanos(&WireDuration { seconds, nanos })
    }
}
