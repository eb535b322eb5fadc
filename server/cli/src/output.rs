//! What commands print: tables for people, JSON for programs, progress while something takes long.
//! It decides no content.

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Serialize, Serializer, ser::SerializeMap as _};
use std::{
    borrow::Cow,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

/// Who reads the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// People: aligned text, long values cut.
    #[default]
    Table,
    /// Programs: JSON by the contract's field names, nothing cut.
    Json,
}

/// A cell or line is cut to this many characters for people.
const CELL_CHARS_MAX: usize = 60;

/// Prints lines of text. Not `println!`, which panics when the reader is gone.
pub(crate) fn text(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// Prints one JSON document on one line.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    serde_json::to_writer(&mut stdout, value)?;
    writeln!(stdout)?;
    stdout.flush()
}

/// Prints one value under its name. Fields keep the order of their declaration, which `json!` would
/// sort by name.
pub(crate) fn json_under(name: &'static str, value: &impl Serialize) -> io::Result<()> {
    struct Under<'a, T>(&'static str, &'a T);
    impl<T: Serialize> Serialize for Under<'_, T> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut map = to.serialize_map(Some(1))?;
            map.serialize_entry(self.0, self.1)?;
            map.end()
        }
    }
    json(&Under(name, value))
}

/// A number of things, as people say it.
pub(crate) fn count(number: i64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Empties the terminal, for what is drawn again.
pub(crate) fn clear_screen() -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    // Home, then clear: the old table does not flash.
    stdout.write_all(b"\x1b[H\x1b[2J")?;
    stdout.flush()
}

/// Lays out rows below their heads.
pub(crate) fn table<const N: usize>(
    heads: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(heads);
    table.add_rows(rows);
    trimmed(&mut table)
}

/// Lays out names beside their values.
pub(crate) fn pairs(pairs: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.add_rows(pairs.into_iter().map(|(name, value)| [name.to_owned(), value]));
    trimmed(&mut table)
}

fn trimmed(table: &mut Table) -> String {
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}

/// Text on one line, cut to what fits a cell; control characters cannot reach the terminal.
pub(crate) fn cell(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut cut: String = chars.by_ref().take(CELL_CHARS_MAX).collect();
    if chars.next().is_some() {
        cut.pop();
        cut.push('…');
    }
    cut
}

/// Progress on standard error, if that is a terminal; else nothing at all.
pub(crate) fn progress(what: impl Into<Cow<'static, str>>, total: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
    }
    let template = match total {
        Some(_) => "{msg} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}",
        None => "{spinner} {msg} {human_pos} {per_sec} {elapsed}",
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| {
        // Fixed text that the tests parse.
        ProgressStyle::default_bar()
    });
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Whether a person is there to be asked.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a yes-or-no question; anything but a clear yes is no.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_leave_no_space_at_line_ends() {
        let text =
            table(["QUEUE", "READY"], [["a".into(), "1".into()], ["long".into(), String::new()]]);
        assert_eq!(text, "QUEUE  READY\na      1\nlong");
    }

    #[test]
    fn a_cell_is_one_short_line_without_control_characters() {
        assert_eq!(cell("a\nb\u{1b}[31m"), "a b [31m");
        assert_eq!(cell(&"ä".repeat(61)).chars().count(), CELL_CHARS_MAX);
        assert!(cell(&"ä".repeat(61)).ends_with('…'));
    }
}
