//! Histories of attempts: how one is kept, appended to and read. Most tasks succeed at once, so a
//! first small attempt stays in the task's row; from the second on, all are in `attempts`, and each
//! append costs the same however long the history is.

use crate::{
    errors::Sql,
    records,
    statements::{HistoryStatements, Statements},
};
use rdq_spi::{Attempt, CLAIM_ATTEMPTS_MAX, HISTORY_BYTES_MAX, fold_at};
use rusqlite::{OptionalExtension as _, Statement, params};

/// An only attempt larger than this is not kept in the task's row, which each transition rewrites.
const ONLY_BYTES_MAX: usize = 512;

/// Where a task's history is.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In `attempts`, all of it.
    pub(crate) in_table: bool,
    /// In the task's row: the only attempt there is.
    pub(crate) only: Option<Vec<u8>>,
}

/// Appends a record.
pub(crate) fn append(
    sql: &mut Statements<'_>,
    task: i64,
    kept: &mut Kept,
    attempt: &Attempt,
) -> Sql<()> {
    let sql = &mut sql.history;
    if !kept.in_table && kept.only.is_none() && attempt.len_bytes() <= ONLY_BYTES_MAX {
        // It is small, so that nothing is heavy about its stack.
        if records::encode_heavy(attempt).is_none() {
            kept.only = Some(records::encode(attempt));
            return Ok(());
        }
    }
    let mut bounds = if kept.in_table { Bounds::load(sql, task)? } else { Bounds::default() };
    if let Some(only) = kept.only.take() {
        bounds.push(sql, task, &records::decode(&only, None)?)?;
    }
    bounds.push(sql, task, attempt)?;
    bounds.store(sql, task)?;
    kept.in_table = true;
    Ok(())
}

/// The whole history, by a statement of `attempts`.
pub(crate) fn whole(attempts: &mut Statement<'_>, task: i64, kept: &Kept) -> Sql<Vec<Attempt>> {
    if !kept.in_table {
        return only(kept);
    }
    attempts
        .query_map([task], |row| {
            records::decode(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob_or_null()?)
        })?
        .collect()
}

/// The newest records without stacks and details, oldest first, by a statement of
/// `newest_attempts`.
pub(crate) fn newest(
    newest_attempts: &mut Statement<'_>,
    task: i64,
    kept: &Kept,
    limit: usize,
) -> Sql<Vec<Attempt>> {
    if !kept.in_table {
        return only(kept);
    }
    let mut attempts = newest_attempts
        .query_map(params![task, limit], |row| records::decode(row.get_ref(0)?.as_blob()?, None))?
        .collect::<Sql<Vec<_>>>()?;
    attempts.reverse();
    Ok(attempts)
}

/// As many of the newest records as a claim carries.
pub(crate) fn for_claim(sql: &mut Statement<'_>, task: i64, kept: &Kept) -> Sql<Vec<Attempt>> {
    newest(sql, task, kept, CLAIM_ATTEMPTS_MAX)
}

fn only(kept: &Kept) -> Sql<Vec<Attempt>> {
    kept.only.iter().map(|record| records::decode(record, None)).collect()
}

/// What bounds a history in `attempts`. Ordinals count the records as they came.
#[derive(Debug, Default)]
struct Bounds {
    next: i64,
    folds: i64,
    bytes: usize,
    /// For each cut (stacks, details, messages, extra bytes): all below have had it.
    shed: [i64; CUTS.len()],
}

/// What a history loses once it weighs too much, in this order, from its oldest record on: what
/// [`rdq_spi::shed`] does to a whole history at once, done from where the last append stopped.
const CUTS: [fn(&mut Attempt) -> bool; 4] = [
    |attempt| attempt.error.as_mut().is_some_and(|error| clear(&mut error.stack)),
    |attempt| attempt.error.as_mut().is_some_and(|error| clear(&mut error.detail)),
    |attempt| attempt.error.as_mut().is_some_and(|error| clear(&mut error.message)),
    |attempt| !std::mem::take(&mut attempt.extra).is_empty(),
];

fn clear(text: &mut String) -> bool {
    !std::mem::take(text).is_empty()
}

impl Bounds {
    fn load(sql: &mut HistoryStatements<'_>, task: i64) -> Sql<Self> {
        sql.history.query_row([task], |row| {
            Ok(Self {
                next: row.get(0)?,
                folds: row.get(1)?,
                bytes: row.get(2)?,
                shed: [row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?],
            })
        })
    }

    fn store(&self, sql: &mut HistoryStatements<'_>, task: i64) -> Sql<()> {
        let [stacks, details, messages, extras] = self.shed;
        sql.put_history.execute(params![
            task, self.next, self.folds, self.bytes, stacks, details, messages, extras
        ])?;
        Ok(())
    }

    fn push(&mut self, sql: &mut HistoryStatements<'_>, task: i64, attempt: &Attempt) -> Sql<()> {
        let records = u32::try_from(self.next - self.folds).unwrap_or(u32::MAX);
        if let Some(index) = fold_at(records) {
            self.fold(sql, task, i64::try_from(index).unwrap_or(i64::MAX))?;
        }
        put(sql, task, self.next, attempt)?;
        self.next += 1;
        self.bytes += attempt.len_bytes();
        self.shed(sql, task)
    }

    /// Folds the record at `index` into the one before it. Nothing below was ever folded away, so
    /// the one before has `index - 1` for its ordinal still.
    fn fold(&mut self, sql: &mut HistoryStatements<'_>, task: i64, index: i64) -> Sql<()> {
        let Some((kept_at, mut kept)) = next_record(sql, task, index - 1)? else { return Ok(()) };
        let Some((gone_at, gone)) = next_record(sql, task, index)? else { return Ok(()) };
        kept.fold_in(&gone);
        put(sql, task, kept_at, &kept)?;
        sql.delete_attempt.execute([task, gone_at])?;
        self.folds += 1;
        self.bytes = self.bytes.saturating_sub(gone.len_bytes());
        Ok(())
    }

    fn shed(&mut self, sql: &mut HistoryStatements<'_>, task: i64) -> Sql<()> {
        for (cut, shed) in CUTS.iter().zip(&mut self.shed) {
            while self.bytes > HISTORY_BYTES_MAX {
                let Some((ordinal, mut attempt)) = next_record(sql, task, *shed)? else { break };
                *shed = ordinal + 1;
                let before = attempt.len_bytes();
                if cut(&mut attempt) {
                    put(sql, task, ordinal, &attempt)?;
                    self.bytes = self.bytes.saturating_sub(before - attempt.len_bytes());
                }
            }
        }
        Ok(())
    }
}

fn put(sql: &mut HistoryStatements<'_>, task: i64, ordinal: i64, attempt: &Attempt) -> Sql<()> {
    let (record, heavy) = (records::encode(attempt), records::encode_heavy(attempt));
    sql.put_attempt.execute(params![task, ordinal, record, heavy])?;
    Ok(())
}

/// The first record from this ordinal on.
fn next_record(
    sql: &mut HistoryStatements<'_>,
    task: i64,
    from: i64,
) -> Sql<Option<(i64, Attempt)>> {
    sql.next_attempt
        .query_row([task, from], |row| {
            let record = row.get_ref(1)?.as_blob()?;
            Ok((row.get(0)?, records::decode(record, row.get_ref(2)?.as_blob_or_null()?)?))
        })
        .optional()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{connection, migrations, statements::text};
    use bytes::Bytes;
    use rdq_spi::{AttemptError, HISTORY_RECORDS_MAX, Timestamp};

    struct Store {
        _dir: tempfile::TempDir,
        db: rusqlite::Connection,
    }

    fn new_store() -> Store {
        let dir = tempfile::tempdir().unwrap();
        let db = connection::open_writer(&dir.path().join("rdq.db")).unwrap();
        migrations::migrate(&db).unwrap();
        // One transaction for all.
        db.execute_batch("BEGIN;").unwrap();
        Store { _dir: dir, db }
    }

    fn read(db: &rusqlite::Connection, kept: &Kept) -> Vec<Attempt> {
        whole(&mut db.prepare(text!(attempts)).unwrap(), 1, kept).unwrap()
    }

    fn attempt(no: u32, [message, detail, stack, extra]: [usize; 4]) -> Attempt {
        let text = |len| "x".repeat(len);
        Attempt {
            attempt_no: no,
            started_at: None,
            finished_at: Some(Timestamp::from_millis(no.into())),
            outcome: None,
            worker_id: None,
            error: Some(AttemptError {
                error_type: "t".into(),
                message: text(message),
                detail: text(detail),
                stack: text(stack),
            }),
            extra: Bytes::from(vec![1; extra]),
            folded_count: 0,
        }
    }

    /// What the contract says, done to the whole history at each append.
    fn append_to_all(all: &mut Vec<Attempt>, attempt: Attempt) {
        if let Some(index) = fold_at(u32::try_from(all.len()).unwrap()) {
            let gone = all.remove(index);
            let kept = &mut all[index - 1];
            kept.folded_count = kept.folded_count.max(1) + gone.folded_count.max(1);
            kept.finished_at = gone.finished_at;
        }
        all.push(attempt);
        rdq_spi::shed(all, HISTORY_BYTES_MAX);
    }

    #[test]
    fn a_heavy_history_loses_what_the_contract_says_append_by_append() {
        let store = new_store();
        let mut sql = Statements::prepare(&store.db).unwrap();
        let (mut kept, mut expected) = (Kept::default(), Vec::new());
        // Enough for every kind of cut, with sizes that repeat irregularly.
        for no in 1..=250 {
            let size = |factor: u32, max: u32| usize::try_from(no * factor % max).unwrap();
            let sizes =
                [size(7, 4_000), size(104_729, 30_000), size(7_919, 60_000), size(1_009, 9_000)];
            append(&mut sql, 1, &mut kept, &attempt(no, sizes)).unwrap();
            append_to_all(&mut expected, attempt(no, sizes));
            assert!(read(&store.db, &kept) == expected, "after {no}");
        }
        assert!(expected.iter().any(|attempt| attempt.extra.is_empty()), "every cut was needed");
    }

    #[test]
    fn a_long_history_folds_in_its_middle() {
        let store = new_store();
        let mut sql = Statements::prepare(&store.db).unwrap();
        let (mut kept, mut expected) = (Kept::default(), Vec::new());
        for no in 1..=HISTORY_RECORDS_MAX + 5 {
            append(&mut sql, 1, &mut kept, &attempt(no, [1, 0, 0, 0])).unwrap();
            append_to_all(&mut expected, attempt(no, [1, 0, 0, 0]));
        }
        let read = read(&store.db, &kept);
        assert_eq!(read.len(), HISTORY_RECORDS_MAX as usize);
        assert_eq!(read[4_999].folded_count, 6);
        assert!(read == expected);
    }

    #[test]
    fn a_first_small_attempt_stays_in_the_tasks_row() {
        let store = new_store();
        let mut sql = Statements::prepare(&store.db).unwrap();
        for (sizes, in_table) in
            [([9, 0, 0, 0], false), ([ONLY_BYTES_MAX, 0, 0, 0], true), ([0, 0, 1, 0], true)]
        {
            let mut kept = Kept::default();
            append(&mut sql, 1, &mut kept, &attempt(1, sizes)).unwrap();
            assert_eq!(kept.in_table, in_table, "{sizes:?}");
        }
    }
}
