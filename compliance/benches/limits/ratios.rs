//! How near rdq comes to the limits, against the goals that were set for it.

use crate::{Limits, measure::Measured};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A report of `rdq bench --output json`, as far as the goals speak of it.
#[derive(Debug, Deserialize)]
struct Report {
    enqueue: Option<Measured>,
    claim_complete: Option<Measured>,
    lives: Option<Measured>,
    pick_up: Option<Measured>,
    publish: Option<Measured>,
    read: Option<Measured>,
    notify: Option<Measured>,
}

impl Report {
    /// The best of each measurement, if there is a report at all.
    fn best(reports: &[String]) -> Result<Option<Self>, serde_json::Error> {
        let mut best: Option<Self> = None;
        for text in reports {
            let report = serde_json::from_str(text)?;
            best = Some(match best {
                Some(best) => best.better(report),
                None => report,
            });
        }
        Ok(best)
    }

    fn better(self, other: Self) -> Self {
        let better = |this: Option<Measured>, that: Option<Measured>| match (this, that) {
            (Some(this), Some(that)) => Some(this.better(that)),
            (this, that) => this.or(that),
        };
        Self {
            enqueue: better(self.enqueue, other.enqueue),
            claim_complete: better(self.claim_complete, other.claim_complete),
            lives: better(self.lives, other.lives),
            pick_up: better(self.pick_up, other.pick_up),
            publish: better(self.publish, other.publish),
            read: better(self.read, other.read),
            notify: better(self.notify, other.notify),
        }
    }
}

/// One goal, and how it stands.
#[derive(Debug, Serialize)]
pub(crate) struct Ratio {
    what: &'static str,
    /// What rdq did.
    rdq: f64,
    /// The limit that it is measured by.
    limit: f64,
    /// The one divided by the other.
    #[serde(rename = "ratio")]
    value: f64,
    /// The goal: at least, or at most.
    goal: Goal,
    met: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Ratio {
    fn new(what: &'static str, rdq: f64, limit: f64, goal: Goal) -> Self {
        let value = rdq / limit;
        let met = match goal {
            Goal::AtLeast(least) => value >= least,
            Goal::AtMost(most) => value <= most,
        };
        Self { what, rdq, limit, value, goal, met }
    }
}

/// A listener hears within this, in 99 cases of 100.
const WAKE_US: f64 = 5_000.0;

/// Compares the reports that there are.
pub(crate) fn of(
    limits: &Limits,
    sqlite: &[String],
    memory: &[String],
) -> Result<Vec<Ratio>, serde_json::Error> {
    let mut ratios = Vec::new();
    if let Some(report) = Report::best(sqlite)? {
        let mut rate = |what, rdq: &Option<Measured>, limit: &Measured, least| {
            if let (Some(rdq), Some(limit)) = (per_second(rdq.as_ref()), limit.per_second) {
                ratios.push(Ratio::new(what, rdq, limit, Goal::AtLeast(least)));
            }
        };
        rate("enqueue calls/s : echo", &report.enqueue, &limits.echo, 1.0 / 2.0);
        rate("claim + complete calls/s : echo", &report.claim_complete, &limits.echo, 1.0 / 3.0);
        rate("whole lives/s : bare SQLite", &report.lives, &limits.lives, 1.0 / 2.0);
        rate("events published/s : bare SQLite", &report.publish, &limits.publish, 1.0 / 2.0);
        rate("events read/s : bare SQLite", &report.read, &limits.read, 1.0 / 2.0);
        if let Some(p99) = report.notify.as_ref().and_then(|notify| notify.p99_us) {
            let what = "notify p99 us : 5,000";
            ratios.push(Ratio::new(what, f64::from(p99), WAKE_US, Goal::AtMost(1.0)));
        }
        if let Some(pick_up) = report.pick_up {
            ratios.extend(pick_ups(limits, &pick_up));
        }
    }
    if let Some(report) = Report::best(memory)? {
        const LIVES_PER_SECOND: f64 = 200_000.0;
        if let Some(lives) = per_second(report.lives.as_ref()) {
            let what = "whole lives/s on memory : 200,000";
            ratios.push(Ratio::new(what, lives, LIVES_PER_SECOND, Goal::AtLeast(1.0)));
        }
    }
    Ok(ratios)
}

/// A pick-up is measured by one echo plus one commit, at their medians: once as busy as the
/// machine gets, once rested as the pick-up itself is.
fn pick_ups(limits: &Limits, pick_up: &Measured) -> Vec<Ratio> {
    let sum = |echo: &Measured, commit: &Measured| {
        Some(f64::from(echo.p50_us?) + f64::from(commit.p50_us?))
    };
    let busy = sum(&limits.echo_alone, &limits.commit);
    let rested = sum(&limits.echo_rested, &limits.commit_rested);
    let (p50, p99) = (pick_up.p50_us.map(f64::from), pick_up.p99_us.map(f64::from));
    [
        ("pick-up p50 us : echo + commit", p50, busy, 3.0),
        ("pick-up p99 us : echo + commit", p99, busy, 10.0),
        ("pick-up p50 us : the same, rested", p50, rested, 3.0),
        ("pick-up p99 us : the same, rested", p99, rested, 10.0),
    ]
    .into_iter()
    .filter_map(|(what, rdq, limit, most)| Some(Ratio::new(what, rdq?, limit?, Goal::AtMost(most))))
    .collect()
}

fn per_second(measured: Option<&Measured>) -> Option<f64> {
    measured.and_then(|measured| measured.per_second)
}

/// The heads of the table of ratios.
pub(crate) fn heads() -> String {
    format!("{:<36}{:>10}{:>10}{:>8}  {:<8}met", "WHAT", "RDQ", "LIMIT", "RATIO", "GOAL")
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = match self.goal {
            Goal::AtLeast(least) => format!(">= {least:.2}"),
            Goal::AtMost(most) => format!("<= {most:.0}"),
        };
        let met = if self.met { "yes" } else { "NO" };
        write!(
            f,
            "{:<36}{:>10.0}{:>10.0}{:>8.2}  {goal:<8}{met}",
            self.what, self.rdq, self.limit, self.value
        )
    }
}
