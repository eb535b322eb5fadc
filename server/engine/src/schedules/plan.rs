//! Which boundaries have come, which of them are caught up, and where a schedule goes on. Pure.

use super::{record::Stored, spec::Spec};
use rdq_spi::Timestamp;

/// So many boundaries that passed unseen are caught up, at the most.
pub(crate) const CATCH_UP_MAX: u32 = 64;

/// What to do with a schedule whose next boundary has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The boundaries that give a task now, at least one unless the cap was reached before.
    pub(crate) boundaries: Vec<Timestamp>,
    /// Where it goes on; `None` if no boundary comes any more.
    pub(crate) next: Option<Timestamp>,
    /// How many more may be caught up, if some are left for the next step.
    pub(crate) catch_up_left: Option<u32>,
    /// Boundaries between the last one here and `next` are left out.
    pub(crate) skips: bool,
}

/// Plans one step, of at most so many tasks.
pub(crate) fn plan(stored: &Stored, spec: &Spec, now: Timestamp, tasks_max: usize) -> Plan {
    let mut left = stored.catch_up_left.unwrap_or(CATCH_UP_MAX);
    let mut boundaries = Vec::new();
    let mut next = stored.schedule.next_boundary_at;
    while let Some(boundary) = next.filter(|next| *next <= now) {
        if left == 0 {
            let next = spec.next_after(stored.anchor, now);
            return Plan { boundaries, next, catch_up_left: None, skips: true };
        }
        if boundaries.len() == tasks_max {
            return Plan { boundaries, next, catch_up_left: Some(left), skips: false };
        }
        boundaries.push(boundary);
        left -= 1;
        next = spec.next_after(stored.anchor, boundary);
    }
    Plan { boundaries, next, catch_up_left: None, skips: false }
}

#[cfg(test)]
mod tests {
    use super::{super::record::tests::stored, *};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn boundaries_that_passed_are_caught_up_to_the_cap_in_steps_or_at_once() {
        let spec = Spec::parse("@every 10s", "").unwrap();
        for (now, caught_up, next, skips) in [
            (9, 0, 10, false),
            (10, 1, 20, false),
            (35, 3, 40, false),
            (640, 64, 650, false),
            (649, 64, 650, false),
            (650, 64, 660, true),
            (86_405, 64, 86_410, true),
        ] {
            for step in [1, 3, 64, 1_000] {
                let mut stored = stored("@every 10s", 0);
                let (mut boundaries, mut skipped) = (Vec::new(), false);
                loop {
                    let plan = plan(&stored, &spec, at(now), step);
                    assert!(plan.boundaries.len() <= step);
                    boundaries.extend(plan.boundaries);
                    stored.schedule.next_boundary_at = plan.next;
                    stored.catch_up_left = plan.catch_up_left;
                    skipped |= plan.skips;
                    if plan.catch_up_left.is_none() {
                        break;
                    }
                }
                let expected: Vec<_> = (1..=caught_up).map(|count| at(10 * count)).collect();
                assert_eq!(boundaries, expected, "at {now} in steps of {step}");
                assert_eq!(stored.schedule.next_boundary_at, Some(at(next)), "at {now}");
                assert_eq!(skipped, skips, "at {now} in steps of {step}");
            }
        }
    }
}
