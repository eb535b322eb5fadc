//! What boundaries come, where local time is regular and where it jumps; and what is no spec.

use super::spec::Spec;
use crate::EngineError;
use jiff::{
    Timestamp as Instant, ToSpan as _,
    civil::DateTime,
    tz::{TimeZone, TimeZoneDatabase},
};
use rdq_spi::Timestamp;
use std::collections::HashSet;

fn at(text: &str) -> Timestamp {
    Timestamp::from_millis(text.parse::<Instant>().unwrap().as_millisecond())
}

fn shown(at: Timestamp) -> String {
    Instant::from_millisecond(at.millis()).unwrap().to_string()
}

/// The boundaries after an instant, as many as are expected.
fn boundaries(spec: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let spec = Spec::parse(spec, zone).unwrap();
    let anchor = at(after);
    let next = |after: &Timestamp| spec.next_after(anchor, *after);
    let first = spec.first_after(anchor).unwrap();
    std::iter::successors(Some(first), next).take(count).map(shown).collect()
}

fn refused(spec: &str, zone: &str) -> Option<&'static str> {
    let first =
        Spec::parse(spec, zone).and_then(|spec| spec.first_after(at("2026-01-01T00:00:00Z")));
    match first {
        Ok(_) => None,
        Err(EngineError::InvalidSpec { field, .. }) => Some(field),
        Err(error) => panic!("{spec:?} in {zone:?}: {error}"),
    }
}

#[test]
fn an_interval_counts_from_when_its_spec_began() {
    for (spec, expected) in [
        ("@every 1s", ["2026-01-01T00:00:01.5Z", "2026-01-01T00:00:02.5Z"]),
        ("@every 90m", ["2026-01-01T01:30:00.5Z", "2026-01-01T03:00:00.5Z"]),
        ("@every 2h", ["2026-01-01T02:00:00.5Z", "2026-01-01T04:00:00.5Z"]),
        ("@every 07d", ["2026-01-08T00:00:00.5Z", "2026-01-15T00:00:00.5Z"]),
    ] {
        assert_eq!(boundaries(spec, "", "2026-01-01T00:00:00.5Z", 2), expected, "{spec}");
    }
    let spec = Spec::parse("@every 10s", "").unwrap();
    let anchor = at("2026-01-01T00:00:00Z");
    for (after, next) in [
        ("2026-01-01T00:00:09.999Z", "2026-01-01T00:00:10Z"),
        ("2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z"),
        ("2026-01-02T00:00:05Z", "2026-01-02T00:00:10Z"),
        ("2025-12-31T00:00:05Z", "2026-01-01T00:00:10Z"),
    ] {
        assert_eq!(shown(spec.next_after(anchor, at(after)).unwrap()), next, "after {after}");
    }
}

#[test]
fn fields_of_cron_mean_what_they_say() {
    let after = "2026-01-01T00:00:00Z"; // a Thursday
    for (spec, expected) in [
        ("* * * * *", ["2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z"]),
        ("0 0 * * *", ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]),
        ("*/20 9-17/4 * * *", ["2026-01-01T09:00:00Z", "2026-01-01T09:20:00Z"]),
        ("5,35 3 * * MON-FRI", ["2026-01-01T03:05:00Z", "2026-01-01T03:35:00Z"]),
        ("0 12 * feb,Mar sun", ["2026-02-01T12:00:00Z", "2026-02-08T12:00:00Z"]),
        ("0 12 * * 7", ["2026-01-04T12:00:00Z", "2026-01-11T12:00:00Z"]),
        ("0 12 * * sat-sun", ["2026-01-03T12:00:00Z", "2026-01-04T12:00:00Z"]),
        // Both days named: either will do.
        ("0 0 13 * 5", ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]),
        ("59 23 31 12 *", ["2026-12-31T23:59:00Z", "2027-12-31T23:59:00Z"]),
        ("0 0 31 * *", ["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"]),
        ("0 0 29 2 *", ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"]),
        (" 0\t0  1 1 * ", ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]),
        ("@hourly", ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"]),
        ("@daily", ["2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]),
        ("@weekly", ["2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"]),
        ("@monthly", ["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]),
        ("@yearly", ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]),
    ] {
        assert_eq!(boundaries(spec, "", after, 2), expected, "{spec}");
        assert_eq!(boundaries(spec, "UTC", after, 2), expected, "{spec}");
    }
    let within = boundaries("* * * * *", "", "2026-01-01T00:00:59.999Z", 1);
    assert_eq!(within, ["2026-01-01T00:01:00Z"]);
    // The longest wait that there is.
    let century = boundaries("0 0 29 2 *", "", "2096-02-29T00:00:00Z", 1);
    assert_eq!(century, ["2104-02-29T00:00:00Z"]);
}

#[test]
fn a_fixed_hour_comes_once_after_it_was_skipped_and_once_where_it_is_repeated() {
    for (spec, zone, after, expected) in [
        // Berlin: 02:00 became 03:00.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        ),
        // However many of its times were skipped.
        (
            "*/15 2 29 3 *",
            "Europe/Berlin",
            "2026-03-28T00:00:00Z",
            ["2026-03-29T01:00:00Z", "2027-03-29T00:00:00Z", "2027-03-29T00:15:00Z"],
        ),
        // What comes at the jump anyhow comes once.
        (
            "0 2,3 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T01:00:00Z"],
        ),
        // Berlin: 03:00 became 02:00.
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"],
        ),
        (
            "0,30 1-3 25 10 *",
            "Europe/Berlin",
            "2026-10-25T00:29:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z"],
        ),
        // New York: 02:00 became 03:00, and 02:00 became 01:00.
        (
            "15 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            ["2026-03-08T07:00:00Z", "2026-03-09T06:15:00Z", "2026-03-10T06:15:00Z"],
        ),
        (
            "15 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            ["2026-11-01T05:15:00Z", "2026-11-02T06:15:00Z", "2026-11-03T06:15:00Z"],
        ),
        // Lord Howe: 02:00 became 02:30, and 02:00 became 01:30.
        (
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T12:00:00Z",
            ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z", "2026-10-05T15:15:00Z"],
        ),
        (
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T12:00:00Z",
            ["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z", "2026-04-06T15:15:00Z"],
        ),
        // Casablanca, whose time is another in Ramadan: 03:00 became 02:00, and 02:00 became 03:00.
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-02-14T12:00:00Z",
            ["2026-02-15T01:30:00Z", "2026-02-16T02:30:00Z", "2026-02-17T02:30:00Z"],
        ),
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-03-21T12:00:00Z",
            ["2026-03-22T02:00:00Z", "2026-03-23T01:30:00Z", "2026-03-24T01:30:00Z"],
        ),
    ] {
        assert_eq!(boundaries(spec, zone, after, 3), expected, "{spec} in {zone} after {after}");
    }
}

#[test]
fn a_wildcard_or_stepped_hour_follows_elapsed_time() {
    for (spec, zone, after, expected) in [
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-03-29T00:00:00Z",
            ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", "2026-03-29T02:30:00Z"],
        ),
        (
            "30 * * * *",
            "Europe/Berlin",
            "2026-10-25T00:00:00Z",
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
        ),
        // Every second hour of the local day: 02:00 is not there, and is there twice.
        (
            "0 */2 * * *",
            "Europe/Berlin",
            "2026-03-28T22:00:00Z",
            ["2026-03-28T23:00:00Z", "2026-03-29T02:00:00Z", "2026-03-29T04:00:00Z"],
        ),
        (
            "0 */2 * * *",
            "Europe/Berlin",
            "2026-10-24T23:00:00Z",
            ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"],
        ),
        (
            "*/30 * * * *",
            "America/New_York",
            "2026-11-01T05:00:00Z",
            ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z", "2026-11-01T06:30:00Z"],
        ),
        (
            "@hourly",
            "America/New_York",
            "2026-03-08T05:30:00Z",
            ["2026-03-08T06:00:00Z", "2026-03-08T07:00:00Z", "2026-03-08T08:00:00Z"],
        ),
        // Half an hour is missing, and is there twice.
        (
            "15,45 * * * *",
            "Australia/Lord_Howe",
            "2026-10-03T15:00:00Z",
            ["2026-10-03T15:15:00Z", "2026-10-03T15:45:00Z", "2026-10-03T16:15:00Z"],
        ),
        (
            "45 * * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:00:00Z",
            ["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"],
        ),
        (
            "0 * * * *",
            "Africa/Casablanca",
            "2026-02-15T00:30:00Z",
            ["2026-02-15T01:00:00Z", "2026-02-15T02:00:00Z", "2026-02-15T03:00:00Z"],
        ),
    ] {
        assert_eq!(boundaries(spec, zone, after, 3), expected, "{spec} in {zone} after {after}");
    }
}

/// What a field has, read naively.
fn values(field: &str, min: i8, max: i8) -> HashSet<i8> {
    let item = |item: &str| {
        let (values, step) = item.split_once('/').unwrap_or((item, "1"));
        let (from, to) = match values.split_once('-') {
            Some((from, to)) => (from.parse().unwrap(), to.parse().unwrap()),
            None if values == "*" => (min, max),
            None => (values.parse().unwrap(), values.parse().unwrap()),
        };
        (from..=to).step_by(step.parse().unwrap())
    };
    field.split(',').flat_map(item).collect()
}

/// Goes through every minute there is, and says which are boundaries.
fn one_by_one(spec: &str, zone: &TimeZone, from: Instant, minutes: i64) -> Vec<Timestamp> {
    let fields: Vec<_> = spec.split(' ').collect();
    let (minute, hour) = (values(fields[0], 0, 59), values(fields[1], 0, 23));
    let (day, month) = (values(fields[2], 1, 31), values(fields[3], 1, 12));
    let fixed = !fields[1].contains(['*', '/']);
    let has = |time: DateTime| {
        minute.contains(&time.minute())
            && hour.contains(&time.hour())
            && day.contains(&time.day())
            && month.contains(&time.month())
    };
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    let mut before: Option<DateTime> = None;
    // Two days more in front, for what was seen already.
    for step in -2 * 1_440..=minutes {
        let instant = from + step.minutes();
        let local = zone.to_offset(instant).to_datetime(instant);
        let mut is_boundary = has(local) && !(fixed && seen.contains(&local));
        if fixed && let Some(before) = before {
            let mut skipped = before + 1.minute();
            while skipped < local {
                is_boundary |= has(skipped);
                skipped += 1.minute();
            }
        }
        seen.insert(local);
        before = Some(local);
        if is_boundary && step > 0 {
            found.push(Timestamp::from_millis(instant.as_millisecond()));
        }
    }
    found
}

#[test]
fn around_every_jump_it_finds_what_going_through_every_minute_finds() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        // At midnight; by two hours; by a whole day; none.
        "America/Havana",
        "America/Asuncion",
        "Antarctica/Troll",
        "Pacific/Apia",
        "America/St_Johns",
        "Asia/Kathmandu",
    ];
    let minutes = ["0", "30", "*/15", "7,45-50", "*", "59"];
    let hours = ["*", "*/2", "2", "0", "1-3", "23", "0,1,2", "1-23/2", "*/7"];
    let days = ["*", "1-31/2", "29-31", "*/5"];
    for name in zones {
        let zone = TimeZoneDatabase::bundled().get(name).unwrap();
        let jumps = zone.following("2006-01-01T00:00:00Z".parse().unwrap());
        let mut jumps: Vec<_> = jumps.take(60).map(|jump| jump.timestamp()).collect();
        jumps.push("2026-05-05T05:05:00Z".parse().unwrap());
        for _ in 0..4 {
            let spec =
                [rng.choice(minutes), rng.choice(hours), rng.choice(days)].map(Option::unwrap);
            let spec = format!("{} * *", spec.join(" "));
            let from = *rng.choice(&jumps).unwrap() - rng.i64(0..1_800).minutes();
            let expected = one_by_one(&spec, &zone, from, 3_600);
            let start = Timestamp::from_millis(from.as_millisecond());
            let read = Spec::parse(&spec, name).unwrap();
            let next = |after: &Timestamp| read.next_after(start, *after);
            let found: Vec<_> = std::iter::successors(read.next_after(start, start), next)
                .take(expected.len())
                .collect();
            assert_eq!(
                found.into_iter().map(shown).collect::<Vec<_>>(),
                expected.into_iter().map(shown).collect::<Vec<_>>(),
                "{spec} in {name} after {from}, seed {seed}"
            );
        }
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn what_is_no_spec_or_never_comes_is_refused_by_field() {
    let many = vec!["1"; 5_000].join(",");
    let long = "x".repeat(1 << 20);
    for spec in [
        "",
        " ",
        "@",
        "@every",
        "@every ",
        "@every 1",
        "@every s",
        "@every 0s",
        "@every -1s",
        "@every +1s",
        "@every 1.5h",
        "@every 1h30m",
        "@every 1 s",
        "@every 1ms",
        "@every 1w",
        "@every １s",
        "@every 1é",
        "@every 9223372036854775807d",
        "@every 99999999999999999999s",
        "@every 300000000000s",
        "@EVERY 1s",
        "@reboot",
        "@annually",
        "@midnight",
        "@Daily",
        "@daily *",
        "* * * *",
        "* * * * * *",
        "0 * * * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 0 *",
        "* * * 13 *",
        "* * * * 8",
        "-1 * * * *",
        "5-1 * * * *",
        "1- * * * *",
        "-5 * * * *",
        "1-2-3 * * * *",
        "*/0 * * * *",
        "*/ * * * *",
        "/5 * * * *",
        "5/10 * * * *",
        "*/-1 * * * *",
        "*/100 * * * *",
        "1-5/0 * * * *",
        "** * * * *",
        "*-5 * * * *",
        ", * * * *",
        "1,,2 * * * *",
        ",1 * * * *",
        "1, * * * *",
        "4294967297 * * * *",
        "65536 * * * *",
        "0000000000000000001 * * * *",
        "+1 * * * *",
        "1.0 * * * *",
        "? * * * *",
        "* * ? * *",
        "* * * * ?",
        "* * L * *",
        "* * 15W * *",
        "* * LW * *",
        "* * * * 5L",
        "* * * * 1#2",
        "* * * * +1",
        "H * * * *",
        "MON * * * *",
        "* * * MON *",
        "* * * * JAN",
        "* * * * MONDAY",
        "* * * * MON-",
        "* * * * FRI-MON",
        "* * * * MON#2",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31 2 *",
        "* * * * *\n",
        "*\u{a0}* * * *",
        "*\0* * * *",
        "* * * * \u{1d7d9}",
        "TZ=UTC * * * * *",
        many.as_str(),
        long.as_str(),
    ] {
        let cut = &spec[..spec.len().min(40)];
        assert_eq!(refused(spec, "Europe/Berlin"), Some("schedule.spec"), "{cut:?}");
    }
    let list = format!("{many} * * * *");
    assert_eq!(refused(&list, ""), Some("schedule.spec"));
    for zone in [
        "Mars/Olympus",
        "Europe",
        "+01:00",
        "UTC+1",
        "EST5EDT4,M3.2.0,M11.1.0",
        "../../etc/passwd",
        "/etc/localtime",
        "Etc/Unknown",
        " ",
        "Europe/Berlin ",
        "Europe/Berlin\0",
        long.as_str(),
    ] {
        let cut = &zone[..zone.len().min(40)];
        assert_eq!(refused("@daily", zone), Some("schedule.time_zone"), "{cut:?}");
        assert_eq!(refused("@every 1s", zone), Some("schedule.time_zone"), "{cut:?}");
    }
}

#[test]
fn the_end_of_time_is_no_boundary() {
    for spec in ["@every 1d", "0 0 29 2 *", "* * * * *", "@yearly"] {
        let parsed = Spec::parse(spec, "Australia/Lord_Howe").unwrap();
        for now in
            [Timestamp::MAX, at("9999-12-30T21:59:59Z"), at("9999-12-29T23:00:00Z"), Timestamp::MIN]
        {
            if let Some(next) = parsed.next_after(now, now) {
                assert!(next > now, "{spec} after {now:?}");
            }
        }
        assert!(parsed.first_after(Timestamp::MAX).is_err(), "{spec}");
    }
}

#[test]
fn no_text_makes_it_panic_or_come_at_or_before_now() {
    let seed = fastrand::u64(..);
    let mut rng = fastrand::Rng::with_seed(seed);
    let pieces = [
        "*", "*", "*", " ", " ", " ", "/", "-", ",", "0", "1", "5", "29", "31", "59", "99",
        "65535", "L", "W", "#", "?", "MON", "sun", "JAN", "dec", "@every ", "@daily", "1h", "9d",
        "é", "\0", "\u{2028}", "+", "TZ=",
    ];
    let zones = ["", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Apia"];
    let mut good = 0;
    for _ in 0..20_000 {
        let count = rng.usize(0..14);
        let text: String = (0..count).map(|_| *rng.choice(&pieces).unwrap()).collect();
        let fields: [&str; 5] = std::array::from_fn(|_| *rng.choice(&pieces).unwrap());
        let text = if rng.bool() { text } else { fields.join(" ") };
        let zone = rng.choice(zones).unwrap();
        let now = Timestamp::from_millis(rng.i64(-62_135_596_800_000..253_402_300_799_999));
        let Ok(spec) = Spec::parse(&text, zone) else { continue };
        good += 1;
        if let Some(next) = spec.next_after(now, now) {
            assert!(next > now, "{text:?} in {zone:?} after {now:?}, seed {seed}");
        }
    }
    assert!(good > 0, "some of it is a spec");
}
