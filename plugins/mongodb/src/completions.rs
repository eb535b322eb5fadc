//! Claims that end in success, by far most of them: those of one claim call that say the same are
//! ended by one statement, unread. Where the server counts fewer than there are, it is looked up which
//! those were; the others are left to be judged one by one.

use crate::{
    admission::Answered,
    changes::{first_error, number},
    database::{Db, literal, random},
    document::{Ending, IN_FLIGHT, SUCCEEDED, TaskDocument, binary, count_of_one_more, date},
    errors::{Access, Failure, Step, corrupt},
    history::{ROOM, succeeded},
    numbers::lift,
    token::{Held, StoreId},
};
use futures::try_join;
use mongodb::bson::{Document, doc, serialize_to_bson};
use rdq_spi::{
    HISTORY_BYTES_MAX, HISTORY_RECORDS_MAX, Outcome, Resolution, Resolved, StorageError, TaskStatus,
};
use std::collections::{HashMap, HashSet};

/// What the resolutions of one statement have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Alike<'r> {
    generation: i64,
    is_strict: bool,
    call: i32,
    result: &'r [u8],
    extra: &'r [u8],
}

/// A resolution, by its place in the call.
struct Ended<'r> {
    index: usize,
    id: &'r str,
    held: Held,
}

type Groups<'r> = HashMap<Alike<'r>, Vec<Ended<'r>>>;

/// Ends the claims among these that hold their task and succeeded; the answers of others are missing.
pub(crate) async fn complete(
    db: &Db,
    store_id: StoreId,
    resolutions: &[&Resolution],
) -> Step<Vec<Option<Answered<Resolved>>>> {
    let (mut kept, mut forgotten) = (Groups::new(), Groups::new());
    for (index, resolution) in resolutions.iter().enumerate() {
        let Outcome::Succeed { attempt, result, forget } = &resolution.outcome else { continue };
        let Some(held) = store_id.held(&resolution.claim.token) else { continue };
        // An error that is told of a success makes a record of its own.
        if attempt.error.is_some() || attempt.extra.len() > ROOM / 2 {
            continue;
        }
        let groups = if *forget { &mut forgotten } else { &mut kept };
        let alike = Alike {
            generation: held.generation,
            is_strict: resolution.strict,
            call: resolution.call.number().into(),
            // What is removed keeps neither.
            result: if *forget { &[] } else { result },
            extra: if *forget { &[] } else { &attempt.extra },
        };
        let id = resolution.claim.task_id.as_str();
        groups.entry(alike).or_default().push(Ended { index, id, held });
    }
    let mut answers: Vec<_> = resolutions.iter().map(|_| None).collect();
    if !kept.is_empty() {
        keep(db, &kept, &mut answers).await?;
    }
    if !forgotten.is_empty() {
        let has_written = !kept.is_empty();
        let late = |failure: Failure| if has_written { failure.after_a_write() } else { failure };
        forget(db, &forgotten, &mut answers).await.map_err(late)?;
    }
    Ok(answers)
}

fn done() -> Answered<Resolved> {
    let status = TaskStatus::Succeeded;
    (Ok(Resolved { status, next_attempt_at: None, replayed: false }), None)
}

/// The tasks that these claims hold.
fn held(db: &Db, alike: &Alike<'_>, items: &[&Ended<'_>]) -> Document {
    let ids: Vec<_> = items.iter().map(|it| it.id).collect();
    let admissions: Vec<_> = items.iter().map(|it| it.held.seq).collect();
    let mut wanted = doc! {
        "_id": { "$in": ids }, "seq": { "$in": admissions },
        "generation": alike.generation, "status": IN_FLIGHT,
    };
    if alike.is_strict {
        wanted.insert("$expr", doc! { "$gt": ["$at", now(db)] });
    }
    wanted
}

/// The server's clock, unless it was set back.
fn now(db: &Db) -> Document {
    doc! { "$max": ["$$NOW", date(db.clock.latest())] }
}

/// Ends claims of tasks that are kept.
async fn keep(
    db: &Db,
    groups: &Groups<'_>,
    answers: &mut [Option<Answered<Resolved>>],
) -> Step<()> {
    // Tells its ends from others', and from later ones of a task with that id.
    let mark = (random() >> 1).cast_signed();
    let mut statements = Vec::with_capacity(groups.len());
    for (alike, items) in groups {
        let mut wanted = held(db, alike, &items.iter().collect::<Vec<_>>());
        // A history that has to be cut is read for it.
        let bytes_max = i64::try_from(HISTORY_BYTES_MAX - ROOM).unwrap_or_default();
        wanted.insert("records", doc! { "$lt": i64::from(HISTORY_RECORDS_MAX) });
        wanted.insert("history_bytes", doc! { "$lte": bytes_max });
        let change = vec![doc! { "$set": succeeding(db, alike, mark)? }];
        statements.push(doc! { "q": wanted, "u": change, "multi": true, "hint": { "_id": 1 } });
    }
    let command = doc! { "update": "tasks", "updates": statements, "ordered": false };
    let count = counted(&db.write(command).await?)?;
    let all: Vec<_> = groups.values().flatten().collect();
    let mut ours: HashSet<String> = HashSet::new();
    if count > 0 && count < all.len() {
        let ids: Vec<_> = all.iter().map(|it| it.id).collect();
        let wanted = doc! { "_id": { "$in": ids }, "ended": mark };
        ours = present(db, wanted).await.map_err(Failure::after_a_write)?;
    }
    for Ended { index, id, .. } in all.iter().copied() {
        if count == all.len() || ours.contains(*id) {
            answers[*index] = Some(done());
        }
    }
    Ok(())
}

/// How many tasks a command changed. One that met other writers stopped there.
fn counted(reply: &Document) -> Step<usize> {
    match first_error(reply, Access::Write) {
        None | Some(Failure::Contention) => {
            usize::try_from(number(reply, "n")).map_err(|_| corrupt("the server's answer"))
        }
        Some(error) => Err(error.after_a_write()),
    }
}

/// The ids among these.
async fn present(db: &Db, wanted: Document) -> Step<HashSet<String>> {
    let ids = vec![doc! { "$match": wanted }, doc! { "$project": { "_id": 1 } }];
    let found: Vec<TaskDocument> = db.read_recent(ids).await?;
    Ok(found.into_iter().map(|task| task.id).collect())
}

/// What a task becomes that has succeeded.
fn succeeding(db: &Db, alike: &Alike<'_>, mark: i64) -> Step<Document> {
    let ending = Ending { call: alike.call, status: SUCCEEDED, next_attempt_at: None };
    let ending = serialize_to_bson(&ending).map_err(|_| corrupt("ending"))?;
    let now = now(db);
    let (record, weight) = succeeded(alike.extra, &now);
    Ok(doc! {
        "revision": { "$add": ["$revision", 1_i64] },
        "attempt_count": count_of_one_more("$attempt_count"),
        "last_attempt_no": count_of_one_more("$last_attempt_no"),
        "attempts": { "$concatArrays": ["$attempts", [record]] },
        "records": { "$add": ["$records", 1_i64] },
        "history_bytes": { "$add": ["$history_bytes", weight] },
        "result": literal(binary(alike.result)),
        "status": literal(SUCCEEDED),
        "live": literal(false),
        "at": "$$REMOVE",
        "finished_at": now,
        "ended": literal(mark),
        "kept": literal(SUCCEEDED),
        "claimed_at": "$$REMOVE",
        "claimed_by": "$$REMOVE",
        "ending": literal(ending),
    })
}

/// Removes tasks that are not kept. Nothing would tell of a removed one whose claim it was: they are
/// read first.
async fn forget(
    db: &Db,
    groups: &Groups<'_>,
    answers: &mut [Option<Answered<Resolved>>],
) -> Step<()> {
    let ids: Vec<_> = groups.values().flatten().map(|it| it.id).collect();
    let wanted = vec![
        doc! { "$match": { "_id": { "$in": ids } } },
        doc! { "$project": { "seq": 1, "generation": 1, "status": 1 } },
    ];
    let lifted = lift(db, groups.keys().map(|alike| alike.generation));
    let (found, ()) = try_join!(db.read_recent::<TaskDocument>(wanted), lifted)?;
    let found: HashMap<_, _> = found.iter().map(|task| (task.id.as_str(), task)).collect();
    let (mut statements, mut removing) = (Vec::new(), Vec::new());
    for (alike, items) in groups {
        let is_held = |it: &&Ended<'_>| {
            found.get(it.id).is_some_and(|task| {
                it.held == Held { seq: task.seq, generation: task.generation }
                    && task.status == IN_FLIGHT
            })
        };
        let items: Vec<_> = items.iter().filter(is_held).collect();
        if !items.is_empty() {
            let wanted = held(db, alike, &items);
            statements.push(doc! { "q": wanted, "limit": 0, "hint": { "_id": 1 } });
            removing.extend(items);
        }
    }
    if removing.is_empty() {
        return Ok(());
    }
    let command = doc! { "delete": "tasks", "deletes": statements, "ordered": false };
    let count = counted(&db.write(command).await?)?;
    let mut left = HashSet::new();
    if count < removing.len() {
        let ids: Vec<_> = removing.iter().map(|it| it.id).collect();
        left = present(db, doc! { "_id": { "$in": ids } }).await.map_err(Failure::after_a_write)?;
    }
    let gone: Vec<_> = removing.iter().filter(|it| !left.contains(it.id)).collect();
    for Ended { index, .. } in gone.iter().copied().copied() {
        // Somebody removed others in that moment, and nobody can tell which.
        let unknown = || {
            let source = "others removed some of these tasks meanwhile".into();
            Err(StorageError::OutcomeUnknown { operation: "resolve", source })
        };
        answers[*index] = Some(if gone.len() == count { done() } else { (unknown(), None) });
    }
    Ok(())
}
