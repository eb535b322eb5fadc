//! What was measured, as tables for people and JSON for programs, with the goals beside it.

use crate::backends::WireGoals;
use serde::Serialize;
use std::fmt;

/// Of the bare loop, at least.
const OF_BARE: f64 = 0.7;
/// Of an empty store's figure, at least: on any backlog, and under a foreign transaction.
const OF_EMPTY: f64 = 0.8;
const OF_EMPTY_FOREIGN: f64 = 0.5;
/// Claims a second while claimants are killed, at least.
const WHILE_KILLED: f64 = 1_000.0;

/// All that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    pub(crate) killed: Vec<Killed>,
    pub(crate) wire: Vec<Wire>,
    /// Tasks that were handed out while somebody held them.
    pub(crate) doubles: u64,
}

/// One measurement of a storage.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    backend: &'static str,
    what: String,
    backlog: u64,
    /// A foreign transaction was open.
    foreign: bool,
    /// In a second, through the storage.
    rdq: f64,
    /// In a second, by the bare driver.
    bare: Option<f64>,
    /// The one divided by the other.
    of_bare: Option<f64>,
    /// What is left of the same on the first backlog.
    of_empty: Option<f64>,
    met: bool,
}

impl Row {
    /// Compares with the bare driver, and with what the report has of the first backlog.
    pub(crate) fn new(
        backend: &'static str,
        what: String,
        backlog: u64,
        foreign: bool,
        rdq: f64,
        bare: Option<f64>,
        report: &Report,
    ) -> Self {
        let first = report.rows.iter().find(|row| row.backend == backend && row.what == what);
        let of_bare = bare.map(|bare| rdq / bare);
        let of_empty = first.map(|first| rdq / first.rdq);
        let of_empty_min = if foreign { OF_EMPTY_FOREIGN } else { OF_EMPTY };
        let met = of_bare.is_none_or(|ratio| ratio >= OF_BARE)
            && of_empty.is_none_or(|ratio| ratio >= of_empty_min);
        Self { backend, what, backlog, foreign, rdq, bare, of_bare, of_empty, met }
    }
}

/// What happened while claimants were killed.
#[derive(Debug, Serialize)]
pub(crate) struct Killed {
    pub(crate) backend: &'static str,
    /// Claims a second that were handed out and told.
    pub(crate) per_second: f64,
    pub(crate) kills: u32,
    pub(crate) server_kills: u32,
    /// Handed out twice.
    pub(crate) doubles: u64,
    /// Handed out, and not in flight any more.
    pub(crate) lost: u64,
}

/// What was measured through the server.
#[derive(Debug, Serialize)]
pub(crate) struct Wire {
    pub(crate) backend: &'static str,
    /// Whole lives a second.
    pub(crate) lives: f64,
    pub(crate) p50_us: Option<u32>,
    pub(crate) p99_us: Option<u32>,
    #[serde(skip)]
    pub(crate) goals: WireGoals,
}

impl Report {
    /// No task was handed out twice, and none was lost.
    pub(crate) fn is_sound(&self) -> bool {
        self.doubles == 0 && self.killed.iter().all(|it| it.doubles == 0 && it.lost == 0)
    }
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"))
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}"))
}

fn met(met: bool) -> &'static str {
    if met { "yes" } else { "NO" }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, what, backlog, .. } = self;
        let beside = if self.foreign { "foreign tx" } else { "" };
        let (rdq, bare) = (rate(Some(self.rdq)), rate(self.bare));
        let (of_bare, of_empty) = (ratio(self.of_bare), ratio(self.of_empty));
        write!(
            f,
            "{backend:<16}{backlog:>8}  {beside:<11}{what:<24}{rdq:>9}{bare:>9}{of_bare:>9}\
             {of_empty:>10}  {}",
            met(self.met)
        )
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, per_second, kills, server_kills, doubles, lost } = self;
        let is_met = *per_second >= WHILE_KILLED && *doubles == 0 && *lost == 0;
        write!(
            f,
            "{backend:<16}{per_second:>8.0} claims/s, {kills} claimants and {server_kills} servers \
             killed, {doubles} claimed twice, {lost} lost  {}",
            met(is_met)
        )
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, lives, goals, .. } = self;
        let micros = |us: Option<u32>| us.map_or_else(|| "-".into(), |us| us.to_string());
        let (p50, p99) = (micros(self.p50_us), micros(self.p99_us));
        let in_time = goals.pick_up_us.zip(self.p50_us).is_none_or(|(goal, us)| goal > us.into());
        let most = rate(goals.pick_up_us);
        write!(
            f,
            "{backend:<16}{lives:>9.0}{:>9.0}{p50:>12}{most:>8}{p99:>12}  {}",
            goals.lives,
            met(*lives > goals.lives && in_time)
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<16}{:>8}  {:<11}{:<24}{:>9}{:>9}{:>9}{:>10}  MET",
            "STORAGE", "BACKLOG", "BESIDE", "WHAT", "RDQ/S", "BARE/S", "OF BARE", "OF EMPTY"
        )?;
        self.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        writeln!(f, "claimed twice: {}\n\nWhile claimants are killed:", self.doubles)?;
        self.killed.iter().try_for_each(|killed| writeln!(f, "{killed}"))?;
        if self.wire.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<16}{:>9}{:>9}{:>12}{:>8}{:>12}  MET",
            "THE SERVER ON", "LIVES/S", "GOAL", "PICK-UP P50", "GOAL", "P99 (US)"
        )?;
        self.wire.iter().try_for_each(|wire| writeln!(f, "{wire}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rdq: f64, bare: f64, foreign: bool, report: &Report) -> Row {
        Row::new("x", "claims".into(), 0, foreign, rdq, Some(bare), report)
    }

    #[test]
    fn a_row_is_compared_with_the_bare_driver_and_with_the_first_backlog() {
        let mut report = Report::default();
        report.rows.push(row(70.0, 100.0, false, &report));
        assert!(report.rows[0].met && report.rows[0].of_empty.is_none());
        assert!(!row(69.0, 100.0, false, &report).met, "too far from the bare driver");
        assert!(row(56.0, 80.0, false, &report).met);
        assert!(!row(55.0, 60.0, false, &report).met, "not flat");
        assert!(row(36.0, 40.0, true, &report).met, "half is enough under a transaction");
        assert!(!row(34.0, 40.0, true, &report).met);
    }

    #[test]
    fn one_double_or_one_loss_is_too_many() {
        let killed = |doubles, lost| Killed {
            backend: "x",
            per_second: 1.0,
            kills: 1,
            server_kills: 0,
            doubles,
            lost,
        };
        let sound = |doubles, killed| {
            let report = Report { doubles, killed: vec![killed], ..Report::default() };
            report.is_sound()
        };
        assert!(sound(0, killed(0, 0)));
        assert!(!sound(1, killed(0, 0)) && !sound(0, killed(1, 0)) && !sound(0, killed(0, 1)));
    }
}
