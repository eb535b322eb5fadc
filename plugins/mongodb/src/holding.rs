//! What holders do with their claims, and how a cancellation ends them. A batch is read, judged
//! here, and changed by one command; what another writer changed meanwhile is judged again.

use crate::{
    admission::Answered,
    changes::{Applied, Change, apply},
    completions::complete,
    database::{Db, TRIES_MAX, pause},
    document::{
        Ending, IN_FLIGHT, PENDING, SUCCEEDED, TaskDocument, binary, date, heads, instant,
        status_number, status_of, with_now,
    },
    errors::{Failure, Step, corrupt},
    numbers::{Drawn, Numbers, draw, lift},
    token::{Held, StoreId},
};
use futures::try_join;
use mongodb::bson::{doc, serialize_to_bson};
use rdq_spi::{
    AttemptOutcome, AttemptReport, Cancelled, ExtendParams, Extended, Outcome, Resolution,
    Resolved, Result, StaleDetail, StorageError, TaskId, TaskStatus, Timestamp,
};
use std::collections::HashMap;

/// What becomes of an item.
enum Judged<T> {
    /// Nothing changes.
    Answer(Result<T>),
    /// This is to change; then the answer is this.
    Change(Box<Change>, Answered<T>),
}

/// The state of the tasks that a batch is about.
struct Read {
    tasks: HashMap<String, TaskDocument>,
    now: Timestamp,
    /// The numbers of ends, if there are any.
    ends: Option<Drawn>,
}

/// Reads, judges and changes until nobody was in the way. `judge` gets the task, the storage's now
/// and, where `ends` says that the item may end its task, a number for that.
async fn transition<I, T>(
    db: &Db,
    operation: &'static str,
    items: &[&I],
    id: impl Fn(&I) -> &TaskId,
    ends: impl Fn(&I) -> bool,
    judge: impl Fn(&I, &TaskDocument, Timestamp, i64) -> Step<Judged<T>>,
) -> Step<Vec<Answered<T>>> {
    let mut answers: Vec<Option<Answered<T>>> = items.iter().map(|_| None).collect();
    let mut open: Vec<usize> = (0..items.len()).collect();
    let mut tries = 0;
    while !open.is_empty() {
        tries += 1;
        let late = |failure: Failure| if tries > 1 { failure.after_a_write() } else { failure };
        let ids: Vec<_> = open.iter().map(|index| id(items[*index]).as_str()).collect();
        let ending = open.iter().filter(|index| ends(items[**index])).count();
        let Read { tasks, now, ends: drawn } = read(db, &ids, ending).await.map_err(late)?;
        let mut ended = 0;
        let (mut changing, mut changes) = (Vec::new(), Vec::new());
        for index in open.drain(..) {
            let item = items[index];
            let Some(task) = tasks.get(id(item).as_str()) else {
                let error = StorageError::NotFound { task_id: id(item).clone() };
                answers[index] = Some((Err(error), None));
                continue;
            };
            let number = drawn.filter(|_| ends(item)).map_or(0, |drawn| drawn.number(ended));
            ended += usize::from(ends(item));
            match judge(item, task, now, number).map_err(late)? {
                Judged::Answer(answer) => answers[index] = Some((answer, None)),
                Judged::Change(change, answer) => {
                    changing.push((index, answer));
                    changes.push(*change);
                }
            }
        }
        let applied = apply(db, changes).await.map_err(late)?;
        for ((index, answer), applied) in changing.into_iter().zip(applied) {
            match applied {
                Applied::Done => answers[index] = Some(answer),
                Applied::Gone => {
                    let error = StorageError::NotFound { task_id: id(items[index]).clone() };
                    answers[index] = Some((Err(error), None));
                }
                Applied::Lost if tries < TRIES_MAX => open.push(index),
                Applied::Lost => {
                    answers[index] = Some((Err(StorageError::Contention { operation }), None));
                }
            }
        }
        if !open.is_empty() {
            pause(tries).await;
        }
    }
    // Every item is answered by now.
    Ok(answers.into_iter().flatten().collect())
}

/// Reads the tasks and draws a number for each that may end, both at once.
async fn read(db: &Db, ids: &[&str], ending: usize) -> Step<Read> {
    let wanted = doc! { "$match": { "_id": { "$in": ids } } };
    let found = db.read::<TaskDocument>(vec![wanted, heads(), with_now()]);
    let ends = async {
        match ending {
            0 => Ok(None),
            _ => draw(db, Numbers::Ends, ending).await.map(Some),
        }
    };
    let (found, ends) = try_join!(found, ends)?;
    if let Some(said) = found.iter().filter_map(|task| task.now).max() {
        db.clock.advance(instant(said));
    }
    let tasks = found.into_iter().map(|task| (task.id.clone(), task)).collect();
    Ok(Read { tasks, now: db.clock.latest(), ends })
}

/// Where a token stands.
enum Standing {
    /// It holds the task.
    Holds,
    /// It is of the newest claim, which is over.
    Over(Ending),
    /// It is of an earlier claim, or of none.
    Superseded,
}

fn standing(task: &TaskDocument, held: Option<Held>) -> Standing {
    if held != Some(Held { seq: task.seq, generation: task.generation }) {
        return Standing::Superseded;
    }
    match task.ending {
        Some(ending) => Standing::Over(ending),
        None if task.status == IN_FLIGHT => Standing::Holds,
        None => Standing::Superseded,
    }
}

fn stale<T>(task: &TaskDocument, ending: Option<Ending>) -> Judged<T> {
    let detail = match ending.map(|ending| ending.call) {
        Some(Ending::CANCELLED) => Some(StaleDetail::Cancelled),
        Some(Ending::EXPIRED) => Some(StaleDetail::Expired),
        _ => None,
    };
    Judged::Answer(Err(StorageError::StaleClaim { task_id: task.task_id(), detail }))
}

fn set_ending(change: &mut Change, ending: Ending) -> Step<()> {
    let ending = serialize_to_bson(&ending).map_err(|_| corrupt("ending"))?;
    change.set("ending", ending);
    Ok(())
}

/// Keeps claims.
pub(crate) async fn extend(
    db: &Db,
    store_id: StoreId,
    leases: &[&ExtendParams],
) -> Step<Vec<Answered<Extended>>> {
    let id = constrain(|lease: &ExtendParams| &lease.claim.task_id);
    transition(
        db,
        "extend_leases",
        leases,
        id,
        |_: &ExtendParams| false,
        |lease: &ExtendParams, task: &TaskDocument, now, _| {
            match standing(task, store_id.held(&lease.claim.token)) {
                Standing::Holds if lease.strict && task.has_lapsed(now) => {
                    return Ok(stale(task, None));
                }
                Standing::Holds => {}
                Standing::Over(ending) => return Ok(stale(task, Some(ending))),
                Standing::Superseded => return Ok(stale(task, None)),
            }
            let mut ends_at = now.after(lease.lease);
            if let (Some(held_max), Some(claimed_at)) = (lease.held_max, task.claimed_at) {
                ends_at = ends_at.min(instant(claimed_at).after(held_max));
            }
            let mut change = Change::in_place(task);
            if lease.strict {
                change.within_lease();
            }
            change.set("at", date(ends_at));
            if let Some(progress) = &lease.progress {
                change.set("progress", binary(progress));
            }
            let remaining = ends_at.since(now);
            let hint = (rdq_spi::QueueName::stored(task.queue.as_str()), remaining);
            let answer = Ok(Extended { lease_expires_at: ends_at, remaining });
            Ok(Judged::Change(Box::new(change), (answer, Some(hint))))
        },
    )
    .await
}

/// Tells the compiler that the id is the item's.
fn constrain<T, F: Fn(&T) -> &TaskId>(id: F) -> F {
    id
}

/// Ends claims.
pub(crate) async fn resolve(
    db: &Db,
    store_id: StoreId,
    resolutions: &[&Resolution],
) -> Step<Vec<Answered<Resolved>>> {
    let mut answers = complete(db, store_id, resolutions).await?;
    let open = resolutions.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
    let open: Vec<_> = open.map(|(resolution, _)| *resolution).collect();
    let has_completed = open.len() < resolutions.len();
    let late = |failure: Failure| if has_completed { failure.after_a_write() } else { failure };
    let mut judged = judge_each(db, store_id, &open).await.map_err(late)?.into_iter();
    for answer in &mut answers {
        if answer.is_none() {
            *answer = judged.next();
        }
    }
    // Every item is answered by now.
    Ok(answers.into_iter().flatten().collect())
}

/// Ends claims, each as it is judged.
pub(crate) async fn judge_each(
    db: &Db,
    store_id: StoreId,
    resolutions: &[&Resolution],
) -> Step<Vec<Answered<Resolved>>> {
    let id = constrain(|it: &Resolution| &it.claim.task_id);
    let ends =
        |it: &Resolution| matches!(it.outcome, Outcome::Succeed { .. } | Outcome::Die { .. });
    let judge = |it: &Resolution, task: &TaskDocument, now: Timestamp, number: i64| {
        judge_resolution(store_id, it, task, now, number)
    };
    let answers = transition(db, "resolve", resolutions, id, ends, judge).await?;
    forget(db, store_id, resolutions, &answers).await;
    Ok(answers)
}

fn judge_resolution(
    store_id: StoreId,
    resolution: &Resolution,
    task: &TaskDocument,
    now: Timestamp,
    number: i64,
) -> Step<Judged<Resolved>> {
    let call = i32::from(resolution.call.number());
    match standing(task, store_id.held(&resolution.claim.token)) {
        Standing::Holds if resolution.strict && task.has_lapsed(now) => {
            return Ok(stale(task, None));
        }
        Standing::Holds => {}
        Standing::Over(ending) if ending.call == call => {
            let status = status_of(ending.status)?;
            let next_attempt_at = ending.next_attempt_at.map(instant);
            return Ok(Judged::Answer(Ok(Resolved { status, next_attempt_at, replayed: true })));
        }
        Standing::Over(ending) => return Ok(stale(task, Some(ending))),
        Standing::Superseded => return Ok(stale(task, None)),
    }
    let mut change = Change::of(task);
    if resolution.strict {
        change.within_lease();
    }
    let due = match &resolution.outcome {
        Outcome::Succeed { attempt, result, forget: _ } => {
            change.append(task, AttemptOutcome::Success, attempt.clone(), now)?;
            change.set("result", binary(result));
            change.finish(task, TaskStatus::Succeeded, number, now);
            None
        }
        Outcome::Retry { attempt, due } => {
            let outcome = AttemptOutcome::RetryableFailure;
            change.append(task, outcome, attempt.clone(), now)?;
            Some(due.resolve(now))
        }
        Outcome::Die { attempt } => {
            let outcome = AttemptOutcome::PermanentFailure;
            change.append(task, outcome, attempt.clone(), now)?;
            change.finish(task, TaskStatus::Dead, number, now);
            None
        }
        Outcome::GiveBack { due } => Some(due.resolve(now).max(now)),
    };
    let status = match (&resolution.outcome, due) {
        (_, Some(due)) => {
            change.wait_until(due);
            TaskStatus::Pending
        }
        (Outcome::Succeed { .. }, None) => TaskStatus::Succeeded,
        (_, None) => TaskStatus::Dead,
    };
    let next_attempt_at = due.map(date);
    set_ending(&mut change, Ending { call, status: status_number(status), next_attempt_at })?;
    let hint = due.map(|due| (rdq_spi::QueueName::stored(task.queue.as_str()), due.since(now)));
    let answer = Ok(Resolved { status, next_attempt_at: due, replayed: false });
    Ok(Judged::Change(Box::new(change), (answer, hint)))
}

/// Removes what is not to be kept. It has succeeded: should this fail, the next sweep removes it.
async fn forget(
    db: &Db,
    store_id: StoreId,
    resolutions: &[&Resolution],
    answers: &[Answered<Resolved>],
) {
    let done = resolutions.iter().zip(answers).filter(|(it, (answer, _))| {
        matches!(it.outcome, Outcome::Succeed { forget: true, .. })
            && answer.as_ref().is_ok_and(|resolved| !resolved.replayed)
    });
    let (mut ids, mut generations) = (Vec::new(), Vec::new());
    for (it, _) in done {
        if let Some(held) = store_id.held(&it.claim.token) {
            ids.push(it.claim.task_id.as_str());
            generations.push(held.generation);
        }
    }
    if ids.is_empty() {
        return;
    }
    let forgotten = doc! {
        "_id": { "$in": ids }, "generation": { "$in": &generations }, "status": SUCCEEDED,
    };
    let command =
        doc! { "delete": "tasks", "deletes": [{ "q": forgotten, "limit": 0 }], "ordered": false };
    let removed = async {
        lift(db, generations).await?;
        db.write(command).await
    };
    if let Err(failure) = removed.await {
        tracing::debug!(?failure, "finished tasks are left for the sweep");
    }
}

/// Ends pending and in-flight tasks.
pub(crate) async fn cancel(db: &Db, tasks: &[&TaskId]) -> Step<Vec<Answered<Cancelled>>> {
    let id = constrain(|task: &TaskId| task);
    transition(
        db,
        "cancel",
        tasks,
        id,
        |_: &TaskId| true,
        |_: &TaskId, task: &TaskDocument, now, number| {
            let status = status_of(task.status)?;
            if status.is_terminal() {
                return Ok(Judged::Answer(Ok(Cancelled { status, changed: false })));
            }
            let mut change = Change::of(task);
            if task.status != PENDING {
                let report = AttemptReport::default();
                change.append(task, AttemptOutcome::Cancelled, report, now)?;
                let status = status_number(TaskStatus::Cancelled);
                let ending = Ending { call: Ending::CANCELLED, status, next_attempt_at: None };
                set_ending(&mut change, ending)?;
            }
            change.finish(task, TaskStatus::Cancelled, number, now);
            let answer = Ok(Cancelled { status: TaskStatus::Cancelled, changed: true });
            Ok(Judged::Change(Box::new(change), (answer, None)))
        },
    )
    .await
}
