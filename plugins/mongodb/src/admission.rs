//! Admission of tasks: an id is admitted once, in one queue. The caller has checked the tasks.

use crate::{
    database::{Db, TRIES_MAX, pause},
    document::{OverridesDocument, PENDING, TaskDocument, binary, date, heads, status_of},
    errors::{Access, DUPLICATE_KEY, Failure, Step, corrupt},
    history::bounded,
    numbers::{Numbers, draw},
};
use mongodb::bson::doc;
use rdq_spi::{Admission, Moment, NewTask, QueueName, Result, StorageError, TaskStatus, Timestamp};
use std::{collections::HashMap, time::Duration};

/// An answer, and whom to hint.
pub(crate) type Answered<T> = (Result<T>, Option<(QueueName, Duration)>);

/// Admits each task that is not there yet. Of two with one id the first in the batch is admitted.
pub(crate) async fn enqueue(db: &Db, tasks: &[NewTask]) -> Step<Vec<Answered<Admission>>> {
    let mut answers: Vec<Option<Answered<Admission>>> = tasks.iter().map(|_| None).collect();
    let mut open: Vec<usize> = (0..tasks.len()).collect();
    let mut tries = 0;
    while !open.is_empty() {
        tries += 1;
        let late = |failure: Failure| if tries > 1 { failure.after_a_write() } else { failure };
        let drawn = draw(db, Numbers::Admissions, open.len()).await.map_err(late)?;
        let documents: Vec<_> = open
            .iter()
            .enumerate()
            .map(|(place, index)| document(&tasks[*index], drawn.number(place), drawn.now))
            .collect();
        let refused = db.insert(&documents).await.map_err(late)?;
        let mut taken = Vec::new();
        for (place, code, message) in refused {
            let index = *open.get(place).ok_or_else(|| corrupt("the server's answer"))?;
            if code == DUPLICATE_KEY {
                taken.push(index);
            } else {
                let failure = Failure::of_code(code, Access::Write, message.into());
                answers[index] = Some((Err(failure.answer("enqueue")), None));
            }
        }
        for (index, document) in open.iter().zip(&documents) {
            if answers[*index].is_none() && !taken.contains(index) {
                let task = &tasks[*index];
                let due_in = document.at.map(|at| crate::document::instant(at).since(drawn.now));
                let admission = Admission { created: true, status: TaskStatus::Pending };
                let hint = (task.queue.clone(), due_in.unwrap_or_default());
                answers[*index] = Some((Ok(admission), Some(hint)));
            }
        }
        open = look_up(db, tasks, taken, &mut answers).await.map_err(Failure::after_a_write)?;
        if tries >= TRIES_MAX * 2 {
            for index in open.drain(..) {
                let operation = "enqueue";
                answers[index] = Some((Err(StorageError::Contention { operation }), None));
            }
        } else if !open.is_empty() {
            pause(tries).await;
        }
    }
    // Every item is answered by now.
    Ok(answers.into_iter().flatten().collect())
}

/// Admits tasks within a transaction: what somebody else admits meanwhile is met at its writes. Of two
/// with one id the first is admitted.
pub(crate) async fn enqueue_within(tx: &Db, tasks: &[&NewTask]) -> Step<Vec<Answered<Admission>>> {
    let ids: Vec<_> = tasks.iter().map(|task| task.id.as_str()).collect();
    let wanted = doc! { "$match": { "_id": { "$in": ids } } };
    let found: Vec<TaskDocument> = tx.read(vec![wanted, heads()]).await?;
    let mut there = HashMap::new();
    for task in found {
        there.insert(task.id, (task.queue, status_of(task.status)?));
    }
    let drawn = draw(tx, Numbers::Admissions, tasks.len()).await?;
    let (mut documents, mut answers) = (Vec::new(), Vec::with_capacity(tasks.len()));
    for (place, task) in tasks.iter().enumerate() {
        answers.push(match there.get(task.id.as_str()) {
            Some((queue, status)) if queue == task.queue.as_str() => {
                (Ok(Admission { created: false, status: *status }), None)
            }
            Some(_) => (Err(StorageError::IdConflict { task_id: task.id.clone() }), None),
            None => {
                let document = document(task, drawn.number(place), drawn.now);
                let due_in = document.at.map(|at| crate::document::instant(at).since(drawn.now));
                documents.push(document);
                let status = TaskStatus::Pending;
                there.insert(task.id.as_str().to_owned(), (task.queue.as_str().to_owned(), status));
                let hint = (task.queue.clone(), due_in.unwrap_or_default());
                (Ok(Admission { created: true, status }), Some(hint))
            }
        });
    }
    if !documents.is_empty()
        && let Some((_, code, message)) = tx.insert(&documents).await?.pop()
    {
        return Err(Failure::of_code(code, Access::Read, message.into()));
    }
    Ok(answers)
}

/// Answers what is there already; returns what has gone meanwhile, or is not yet with the majority.
async fn look_up(
    db: &Db,
    tasks: &[NewTask],
    taken: Vec<usize>,
    answers: &mut [Option<Answered<Admission>>],
) -> Step<Vec<usize>> {
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<_> = taken.iter().map(|index| tasks[*index].id.as_str()).collect();
    let wanted = doc! { "$match": { "_id": { "$in": ids } } };
    let found: Vec<TaskDocument> = db.read(vec![wanted, heads()]).await?;
    let found: HashMap<_, _> = found.into_iter().map(|task| (task.id.clone(), task)).collect();
    let mut again = Vec::new();
    for index in taken {
        let task = &tasks[index];
        let Some(there) = found.get(task.id.as_str()) else {
            again.push(index);
            continue;
        };
        let answer = if there.queue == task.queue.as_str() {
            let status = status_of(there.status)?;
            Ok(Admission { created: false, status })
        } else {
            Err(StorageError::IdConflict { task_id: task.id.clone() })
        };
        answers[index] = Some((answer, None));
    }
    Ok(again)
}

fn document(task: &NewTask, seq: i64, now: Timestamp) -> TaskDocument {
    let resolve = |moment: Moment| date(moment.resolve(now));
    let history = bounded(task.attempts.iter().cloned());
    let last_attempt_no = task.attempts.iter().map(|attempt| attempt.attempt_no).max();
    TaskDocument {
        id: task.id.as_str().to_owned(),
        queue: task.queue.as_str().to_owned(),
        handler_ref: task.handler_ref.as_str().to_owned(),
        rank: -i64::from(task.priority),
        at: Some(resolve(task.due)),
        seq,
        status: PENDING,
        live: true,
        created_at: Some(date(task.created_at.unwrap_or(now))),
        expires_at: task.expires.map(resolve),
        attempt_count: task.attempt_count.into(),
        redrive_count: task.redrive_count.into(),
        lease_expired_count: task.lease_expired_count.into(),
        last_attempt_no: last_attempt_no.unwrap_or_default().into(),
        overrides: OverridesDocument::of(&task.overrides),
        progress: Some(binary(&task.progress)),
        envelope: Some(binary(&task.envelope)),
        records: history.records,
        history_bytes: history.bytes,
        attempts: history.attempts,
        ..TaskDocument::default()
    }
}
