//! Cron in a time zone. The library reads the fields; which of their local times come to pass where
//! local time jumps is decided here.

use croner::{CronPattern, Weekday, parser::CronParser};
use jiff::{
    Timestamp as Instant, ToSpan as _,
    civil::{Date, DateTime},
    tz::{Offset, TimeZone},
};
use rdq_spi::Timestamp;

/// The rarest spec that comes at all is the 29th of February, at most eight years apart.
const SEARCH_DAYS: i32 = 9 * 366;
/// Local time jumps by a day at most, so that what lies further back has no say.
const LOOK_BACK_SECONDS: i64 = 2 * 86_400;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Five fields of cron in a time zone.
pub(crate) struct Cron {
    pattern: CronPattern,
    /// Ascending, at least one.
    hours: Vec<i8>,
    /// Ascending, at least one.
    minutes: Vec<i8>,
    /// The hour is neither a wildcard nor stepped.
    fixed_hour: bool,
    zone: TimeZone,
}

/// A time during which the zone's offset is one.
struct Stretch {
    offset: Offset,
    from: Instant,
    /// The first instant that is not within; `None` if the zone has no later offset.
    until: Option<Instant>,
}

impl Stretch {
    fn local(&self, instant: Instant) -> DateTime {
        self.offset.to_datetime(instant)
    }
}

impl Cron {
    /// Reads minute, hour, day of month, month and day of week; what is wrong, as the end of a sentence.
    pub(crate) fn parse(fields: [&str; 5], zone: TimeZone) -> Result<Self, String> {
        let names: [&[&str]; 5] = [&[], &[], &[], &MONTHS, &WEEKDAYS];
        for (field, names) in fields.iter().zip(names) {
            if !field.split(',').all(|item| is_item(item, names)) {
                return Err(format!("has {field:?}, which is not a field of cron there"));
            }
        }
        let text = fields.join(" ");
        let pattern = CronParser::new()
            .parse(&text)
            .map_err(|error| format!("is not five fields of cron: {error}"))?
            .pattern;
        let times =
            |values: Vec<u16>| values.into_iter().filter_map(|value| i8::try_from(value).ok());
        let hours: Vec<_> = times(pattern.hours.values()).collect();
        let minutes: Vec<_> = times(pattern.minutes.values()).collect();
        if hours.is_empty() || minutes.is_empty() {
            return Err("never comes".to_owned());
        }
        let fixed_hour = !fields[1].contains(['*', '/']);
        Ok(Self { pattern, hours, minutes, fixed_hour, zone })
    }

    /// The first boundary after an instant.
    ///
    /// Goes through the stretches of one offset: within one, local time is regular. Between two of
    /// them it jumps: a fixed hour that was skipped comes at the jump, and one that was there already
    /// does not come again; any other hour comes as often as local time shows it.
    pub(crate) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let earliest = Instant::from_millisecond(after.millis().checked_add(1)?).ok()?;
        let start = Instant::from_second(earliest.as_second() - LOOK_BACK_SECONDS).ok()?;
        let today = self.zone.to_offset(earliest).to_datetime(earliest).date();
        let last_day = today.checked_add(SEARCH_DAYS.days()).unwrap_or(Date::MAX);
        let mut stretch = self.stretch_at(start);
        // The first local time that no stretch before this one had.
        let mut fresh: Option<DateTime> = None;
        loop {
            let begin = stretch.local(stretch.from);
            if begin.date() > last_day {
                return None;
            }
            let fresh_hour = fresh.filter(|_| self.fixed_hour);
            if let Some(fresh) = fresh_hour
                && stretch.from >= earliest
                && self.local_time(fresh, begin.date()).is_some_and(|skipped| skipped < begin)
            {
                return Some(timestamp(stretch.from));
            }
            let from = stretch.local(stretch.from.max(earliest));
            let from = fresh_hour.map_or(from, |fresh| from.max(fresh));
            let end = stretch.until.map(|until| stretch.local(until));
            let to = end.map_or(last_day, |end| end.date().min(last_day));
            if let Some(found) = self.local_time(from, to)
                && end.is_none_or(|end| found < end)
            {
                return stretch.offset.to_timestamp(found).ok().map(timestamp);
            }
            fresh = fresh.max(end);
            stretch = self.stretch_at(stretch.until?);
        }
    }

    fn stretch_at(&self, instant: Instant) -> Stretch {
        let until = self.zone.following(instant).next().map(|transition| transition.timestamp());
        Stretch { offset: self.zone.to_offset(instant), from: instant, until }
    }

    /// The first local time of the spec at or after `from`, up to the end of the day `to`.
    fn local_time(&self, from: DateTime, to: Date) -> Option<DateTime> {
        let mut day = from.date();
        while day <= to {
            if self.has_day(day) {
                let from = if day == from.date() { from } else { day.at(0, 0, 0, 0) };
                let mut times =
                    self.hours.iter().filter(|hour| **hour >= from.hour()).flat_map(|hour| {
                        self.minutes.iter().map(move |minute| day.at(*hour, *minute, 0, 0))
                    });
                if let Some(time) = times.find(|time| *time >= from) {
                    return Some(time);
                }
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let number = |value: i8| u32::from(value.unsigned_abs());
        let (year, month, day) = (i32::from(date.year()), number(date.month()), number(date.day()));
        let weekday = number(date.weekday().to_sunday_zero_offset());
        let weekday = Weekday::from_days_from_sunday(weekday);
        self.pattern.month_match(month).unwrap_or(false)
            && self.pattern.day_match(year, month, day, weekday).unwrap_or(false)
    }
}

fn timestamp(instant: Instant) -> Timestamp {
    Timestamp::from_millis(instant.as_millisecond())
}

/// Whether text is `*`, a value or a range, the first and the last perhaps with a step: less than the
/// library reads, and what the contract promises.
fn is_item(text: &str, names: &[&str]) -> bool {
    let is_number = |text: &str| {
        (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_value =
        |text: &str| is_number(text) || names.iter().any(|name| name.eq_ignore_ascii_case(text));
    let (values, step) = match text.split_once('/') {
        Some((values, step)) => (values, Some(step)),
        None => (text, None),
    };
    let is_range = values.split_once('-').is_some_and(|(from, to)| is_value(from) && is_value(to));
    match step {
        Some(step) => is_number(step) && (values == "*" || is_range),
        None => values == "*" || is_range || is_value(values),
    }
}
