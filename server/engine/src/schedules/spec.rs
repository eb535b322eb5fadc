//! When a schedule's boundaries come. Pure: no clock, no storage.

use super::{cron::Cron, zone};
use crate::EngineError;
use jiff::{Timestamp as Instant, tz::TimeZone};
use rdq_spi::Timestamp;

const SPEC: &str = "schedule.spec";
const TIME_ZONE: &str = "schedule.time_zone";
/// Every value of every field, written out, has fewer.
const SPEC_BYTES_MAX: usize = 1_000;
const ZONE_BYTES_MAX: usize = 255;

/// A schedule's spec in its time zone, understood.
pub(crate) enum Spec {
    /// From the anchor on, every so many milliseconds.
    Every { millis: i64 },
    /// By local time.
    Cron(Box<Cron>),
}

impl Spec {
    /// Understands a spec, in bounded time, whatever it is.
    pub(crate) fn parse(spec: &str, time_zone: &str) -> Result<Self, EngineError> {
        let zone = zone_of(time_zone)?;
        let invalid = |message: &str| invalid(SPEC, message);
        if spec.len() > SPEC_BYTES_MAX {
            return Err(invalid(&format!("must be at most {SPEC_BYTES_MAX} bytes")));
        }
        let words: Vec<_> = spec.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
        let fields = match *words {
            ["@every", interval] => {
                let millis = interval_millis(interval).ok_or_else(|| {
                    invalid(
                        "must be `@every <n><unit>`, n from 1 on and the unit one of s, m, h, d",
                    )
                })?;
                return Ok(Self::Every { millis });
            }
            ["@hourly"] => ["0", "*", "*", "*", "*"],
            ["@daily"] => ["0", "0", "*", "*", "*"],
            ["@weekly"] => ["0", "0", "*", "*", "0"],
            ["@monthly"] => ["0", "0", "1", "*", "*"],
            ["@yearly"] => ["0", "0", "1", "1", "*"],
            [minute, hour, day, month, weekday] => [minute, hour, day, month, weekday],
            _ => {
                return Err(invalid(
                    "must be `@every <n><unit>`, five fields of cron, or one of @hourly, @daily, \
                     @weekly, @monthly and @yearly",
                ));
            }
        };
        let cron = Cron::parse(fields, zone).map_err(|message| invalid(&message))?;
        Ok(Self::Cron(Box::new(cron)))
    }

    /// The first boundary after an instant, of a spec that is in force since `anchor`; `None` if none
    /// comes.
    pub(crate) fn next_after(&self, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every { millis } => {
                let passed = after.millis().saturating_sub(anchor.millis()).max(0) / millis;
                let next = passed.checked_add(1)?.checked_mul(*millis)?;
                let next = anchor.millis().checked_add(next)?;
                // A boundary is one that can be written.
                Instant::from_millisecond(next).ok().map(|_| Timestamp::from_millis(next))
            }
            Self::Cron(cron) => cron.next_after(after),
        }
    }

    /// The same for a spec that begins now, where one that never comes is refused.
    pub(crate) fn first_after(&self, now: Timestamp) -> Result<Timestamp, EngineError> {
        self.next_after(now, now).ok_or_else(|| invalid(SPEC, "never comes"))
    }
}

fn invalid(field: &'static str, message: &str) -> EngineError {
    EngineError::InvalidSpec { field, message: message.to_owned() }
}

fn zone_of(name: &str) -> Result<TimeZone, EngineError> {
    if name.is_empty() {
        return Ok(TimeZone::UTC);
    }
    let known = (name.len() <= ZONE_BYTES_MAX).then(|| zone::find(name)).flatten();
    known.ok_or_else(|| invalid(TIME_ZONE, "must be the IANA name of a time zone"))
}

/// Milliseconds of `<n><unit>`.
fn interval_millis(text: &str) -> Option<i64> {
    let (count, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    if !count.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: i64 = count.parse().ok().filter(|count| *count >= 1)?;
    count.checked_mul(seconds)?.checked_mul(1_000)
}
