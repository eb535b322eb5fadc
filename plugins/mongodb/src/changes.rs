//! Transitions of tasks, many in one command. Each is guarded by the revision that it was judged
//! by: a task that changed since is left as it is, and the caller judges again.
//!
//! The server counts what a command changed, but does not say which. So a statement whose guard
//! fails makes an error of its own, by which it is told from the others.

use crate::{
    database::{Db, literal, pause},
    document::{IN_FLIGHT, TaskDocument, date, one_more, status_number},
    errors::{Access, Failure, Step, corrupt},
    history::{AttemptDocument, bounded, record},
};
use mongodb::bson::{Bson, Document, doc, serialize_to_bson};
use rdq_spi::{
    Attempt, AttemptOutcome, AttemptReport, HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, TaskStatus,
    Timestamp,
};
use std::collections::HashSet;

/// One command holds so many changes, of so many bytes.
pub(crate) const COMMAND_CHANGES_MAX: usize = 1_000;
pub(crate) const COMMAND_BYTES_MAX: usize = 12 << 20;
/// How often changes are sent again that met another writer on their own document.
const TRIES_MAX: u32 = 10;
/// The server's word for text that is no number: what a failed guard makes of the task's id.
const NOT_A_NUMBER: i32 = 241;

/// Where a full history's record goes that is folded into the one before.
const FOLDED_AT: u32 = HISTORY_RECORDS_MAX / 2;

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    Done,
    /// The task has changed since it was read.
    Lost,
    /// The task is gone.
    Gone,
}

/// A change of one task.
#[derive(Debug)]
pub(crate) struct Change {
    id: String,
    guard: Vec<Bson>,
    set: Document,
    bytes: usize,
    /// What is to be appended to a history whose text is at its bound, and has to be read for it.
    overflowing: Option<Attempt>,
    seq: i64,
}

impl Change {
    /// A transition of the task as it was read.
    pub(crate) fn of(task: &TaskDocument) -> Self {
        let mut change = Self::in_place(task);
        change.set("revision", task.revision + 1);
        change
    }

    /// A change that leaves others' judgements of the task as they are.
    pub(crate) fn in_place(task: &TaskDocument) -> Self {
        let guard = vec![
            doc! { "$eq": ["$seq", task.seq] }.into(),
            doc! { "$eq": ["$revision", task.revision] }.into(),
        ];
        Self {
            id: task.id.clone(),
            guard,
            set: Document::new(),
            bytes: 500,
            overflowing: None,
            seq: task.seq,
        }
    }

    /// Only while the lease runs, by the server's clock at the change itself.
    pub(crate) fn within_lease(&mut self) {
        self.guard.push(doc! { "$gt": ["$at", "$$NOW"] }.into());
    }

    /// Only while nobody has kept the lapsed claim meanwhile.
    pub(crate) fn while_unkept(&mut self, task: &TaskDocument) {
        self.guard.push(doc! { "$eq": ["$at", task.at] }.into());
    }

    pub(crate) fn set(&mut self, field: &str, value: impl Into<Bson>) {
        let value = value.into();
        self.bytes += match &value {
            Bson::Binary(binary) => binary.bytes.len(),
            Bson::String(text) => text.len(),
            _ => 32,
        };
        self.set.insert(field, literal(value));
    }

    pub(crate) fn unset(&mut self, field: &str) {
        self.set.insert(field, "$$REMOVE");
    }

    /// Pending from then on.
    pub(crate) fn wait_until(&mut self, due: Timestamp) {
        self.set("status", status_number(TaskStatus::Pending));
        self.set("live", true);
        self.set("at", date(due));
        self.leave_claim();
    }

    /// Finished, as the `ended`th task.
    pub(crate) fn finish(
        &mut self,
        task: &TaskDocument,
        status: TaskStatus,
        ended: i64,
        now: Timestamp,
    ) {
        self.set("status", status_number(status));
        self.set("live", false);
        self.unset("at");
        self.set("finished_at", date(now));
        self.set("ended", ended);
        match task.overrides.read().retention_dead.filter(|_| status == TaskStatus::Dead) {
            Some(retention) => self.set("purge_at", date(now.after(retention))),
            // By what, and by when, the queue's retention removes it.
            None => self.set("kept", status_number(status)),
        }
        self.leave_claim();
    }

    fn leave_claim(&mut self) {
        self.unset("claimed_at");
        self.unset("claimed_by");
    }

    /// Appends the record of the claim that ends now, or of a transition without one, and counts
    /// it.
    pub(crate) fn append(
        &mut self,
        task: &TaskDocument,
        outcome: AttemptOutcome,
        report: AttemptReport,
        now: Timestamp,
    ) -> Step<AttemptDocument> {
        let no = one_more(task.last_attempt_no);
        let is_held = task.status == IN_FLIGHT;
        let held = is_held.then_some((task.claimed_at, task.claimed_by.as_deref()));
        let attempt = record(no, held, outcome, report, now);
        self.set("attempt_count", one_more(task.attempt_count));
        self.set("last_attempt_no", no);
        let document = AttemptDocument::of(&attempt);
        let weight = task.history_bytes + document.weight();
        if !fits(weight) {
            self.overflowing = Some(attempt);
            return Ok(document);
        }
        self.bytes += usize::try_from(document.weight()).unwrap_or(usize::MAX);
        let appended = literal(serialize_to_bson(&document).map_err(|_| corrupt("attempt"))?);
        let is_full = task.records >= HISTORY_RECORDS_MAX.into();
        let before = if is_full { Bson::Document(folded()) } else { "$attempts".into() };
        self.set.insert("attempts", doc! { "$concatArrays": [before, [appended]] });
        if is_full {
            let gone = doc! { "$arrayElemAt": ["$attempts.bytes", i64::from(FOLDED_AT)] };
            self.set.insert("history_bytes", doc! { "$subtract": [weight, gone] });
        } else {
            self.set("records", task.records + 1);
            self.set("history_bytes", weight);
        }
        Ok(document)
    }

    /// Reads the history that has to be cut to take one more record. Should the task have changed
    /// since it was judged, the change will be lost.
    async fn complete(&mut self, db: &Db) -> Step<()> {
        let Some(attempt) = self.overflowing.take() else { return Ok(()) };
        let mut attempts = whole_history(db, &self.id, self.seq).await?;
        attempts.push(attempt);
        self.replace_history(attempts)
    }

    /// Puts a history in place of the task's, within its bounds.
    fn replace_history(&mut self, attempts: Vec<Attempt>) -> Step<()> {
        let history = bounded(attempts);
        self.bytes += usize::try_from(history.bytes + 200 * history.records).unwrap_or(usize::MAX);
        let attempts = serialize_to_bson(&history.attempts).map_err(|_| corrupt("attempts"))?;
        self.set("attempts", attempts);
        self.set("records", history.records);
        self.set("history_bytes", history.bytes);
        Ok(())
    }

    fn statement(&self) -> Document {
        let mut set = self.set.clone();
        let lost = doc! { "$toInt": { "$concat": ["lost ", "$_id"] } };
        set.insert("guard", doc! { "$cond": [{ "$and": &self.guard }, "$$REMOVE", lost] });
        doc! { "q": { "_id": &self.id }, "u": [{ "$set": set }] }
    }
}

/// A full history with room for one more: its middle record is folded into the one before.
fn folded() -> Document {
    let half = FOLDED_AT;
    let at = |place: u32| doc! { "$arrayElemAt": ["$attempts", i64::from(place)] };
    let stands_for = |record: &str| doc! { "$max": [format!("{record}.folded"), 1_i64] };
    let sum = doc! { "$add": [stands_for("$$kept"), stands_for("$$gone")] };
    let sum = doc! { "$min": [sum, i64::from(u32::MAX)] };
    let both = doc! { "$mergeObjects": [
        "$$kept", { "folded": sum, "finished": "$$gone.finished" },
    ] };
    doc! { "$let": {
        "vars": { "kept": at(half - 1), "gone": at(half) },
        "in": { "$concatArrays": [
            { "$slice": ["$attempts", i64::from(half - 1)] },
            [both],
            { "$slice": ["$attempts", i64::from(half + 1), i64::from(HISTORY_RECORDS_MAX)] },
        ] },
    } }
}

/// Whether a history of this weight is within its bound.
fn fits(weight: i64) -> bool {
    usize::try_from(weight).is_ok_and(|weight| weight <= HISTORY_BYTES_MAX)
}

/// The history of a task.
async fn whole_history(db: &Db, id: &str, seq: i64) -> Step<Vec<Attempt>> {
    let wanted = doc! { "_id": id, "seq": seq };
    let pipeline = vec![doc! { "$match": wanted }, doc! { "$project": { "attempts": 1 } }];
    let found: Vec<TaskDocument> = db.read_recent(pipeline).await?;
    let attempts = found.into_iter().flat_map(|task| task.attempts);
    attempts.map(AttemptDocument::into_attempt).collect()
}

/// Applies changes, no two of them of one task, each with its own answer.
pub(crate) async fn apply(db: &Db, mut changes: Vec<Change>) -> Step<Vec<Applied>> {
    for change in &mut changes {
        change.complete(db).await?;
    }
    let mut applied = vec![Applied::Done; changes.len()];
    let mut has_written = false;
    let mut from = 0;
    while from < changes.len() {
        let mut bytes = 0;
        let fitting = changes[from..].iter().take(COMMAND_CHANGES_MAX).take_while(|change| {
            bytes += change.bytes;
            bytes <= COMMAND_BYTES_MAX
        });
        let to = from + fitting.count().max(1);
        let part = apply_once(db, &changes[from..to], &mut applied[from..to]).await;
        part.map_err(|failure| if has_written { failure.after_a_write() } else { failure })?;
        has_written = true;
        from = to;
    }
    Ok(applied)
}

async fn apply_once(db: &Db, changes: &[Change], applied: &mut [Applied]) -> Step<()> {
    let mut open: Vec<usize> = (0..changes.len()).collect();
    let mut done = 0;
    let mut tries = 0;
    let mut ids = HashSet::new();
    while !open.is_empty() {
        tries += 1;
        let statements: Vec<_> = open.iter().map(|index| changes[*index].statement()).collect();
        let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
        let reply = db.write(command).await;
        let reply = reply.map_err(|it| if tries > 1 { it.after_a_write() } else { it })?;
        done += number(&reply, "n");
        let mut again = Vec::new();
        for error in reply.get_array("writeErrors").into_iter().flatten() {
            let error = error.as_document().ok_or_else(|| corrupt("the server's answer"))?;
            let index = usize::try_from(number(error, "index")).ok();
            let index = index.and_then(|index| open.get(index));
            let index = *index.ok_or_else(|| corrupt("the server's answer"))?;
            if number(error, "code") == i64::from(NOT_A_NUMBER) {
                applied[index] = Applied::Lost;
                ids.insert(index);
                continue;
            }
            let failure = write_error(error, Access::Write);
            if !matches!(failure, Failure::Contention) {
                return Err(failure.after_a_write());
            }
            if tries < TRIES_MAX {
                again.push(index);
            } else {
                // Whoever judged it judges again, and gives up there.
                applied[index] = Applied::Lost;
                ids.insert(index);
            }
        }
        open = again;
        if !open.is_empty() {
            pause(tries).await;
        }
    }
    if usize::try_from(done).is_ok_and(|done| done + ids.len() < changes.len()) {
        let all: Vec<_> = changes.iter().map(|change| change.id.as_str()).collect();
        let wanted = doc! { "$match": { "_id": { "$in": all } } };
        let there = db.read_recent(vec![wanted, doc! { "$project": { "_id": 1 } }]).await;
        let there: Vec<TaskDocument> = there.map_err(Failure::after_a_write)?;
        let there: HashSet<_> = there.into_iter().map(|task| task.id).collect();
        for (index, change) in changes.iter().enumerate() {
            if !there.contains(&change.id) {
                applied[index] = Applied::Gone;
            }
        }
    }
    Ok(())
}

/// Why a statement of a command failed, if one did.
pub(crate) fn first_error(reply: &Document, access: Access) -> Option<Failure> {
    Some(write_error(reply.get_array("writeErrors").ok()?.first()?.as_document()?, access))
}

fn write_error(error: &Document, access: Access) -> Failure {
    match i32::try_from(number(error, "code")).unwrap_or_default() {
        // The task changed since it was judged.
        NOT_A_NUMBER => Failure::Contention,
        code => {
            let message = error.get_str("errmsg").unwrap_or_default();
            Failure::of_code(code, access, message.into())
        }
    }
}

/// A number of an answer, whatever its type there.
pub(crate) fn number(document: &Document, field: &str) -> i64 {
    match document.get(field) {
        Some(Bson::Int32(number)) => (*number).into(),
        Some(Bson::Int64(number)) => *number,
        #[allow(clippy::cast_possible_truncation, reason = "a count")]
        Some(Bson::Double(number)) => *number as i64,
        _ => 0,
    }
}
