//! Admission of tasks. The engine has checked them; the schema's function admits an id once.

use crate::{
    errors::{Sql, corrupt},
    history,
    rows::{self, filled, millis},
};
use rdq_spi::{
    Admission, Attempt, Moment, NewTask, Result, StorageError, TaskStatus, duration_number,
};
use sqlx::{PgConnection, Row as _};
use std::time::Duration;

/// What became of one task.
pub(crate) enum Admitted {
    /// It was answered; and if it was admitted, how soon it is due.
    Answered(Result<Admission>, Option<Duration>),
    /// Its id was taken a moment ago and is free now.
    Again,
}

/// Admits tasks without two of one id.
pub(crate) async fn enqueue(db: &mut PgConnection, tasks: &[&NewTask]) -> Sql<Vec<Admitted>> {
    let histories = tasks.iter().map(|task| carried(task)).collect::<Sql<Vec<_>>>()?;
    let all =
        |of: fn(&NewTask) -> Option<i64>| tasks.iter().map(|task| of(task)).collect::<Vec<_>>();
    let text = |of: fn(&NewTask) -> &str| tasks.iter().map(|task| of(task)).collect::<Vec<_>>();
    let answers = sqlx::query(include_str!("queries/enqueue.sql"))
        .bind(text(|task| task.id.as_str()))
        .bind(text(|task| task.queue.as_str()))
        .bind(text(|task| task.handler_ref.as_str()))
        .bind(tasks.iter().map(|task| task.priority).collect::<Vec<_>>())
        .bind(all(|task| at(task.due)))
        .bind(all(|task| after(task.due)))
        .bind(all(|task| task.expires.and_then(at)))
        .bind(all(|task| task.expires.and_then(after)))
        .bind(all(|task| task.created_at.map(rdq_spi::Timestamp::millis)))
        .bind(tasks.iter().map(|task| &task.envelope[..]).collect::<Vec<_>>())
        .bind(all(|task| task.overrides.max_attempts.map(i64::from)))
        .bind(all(|task| task.overrides.lease.map(duration_number)))
        .bind(all(|task| task.overrides.initial_backoff.map(duration_number)))
        .bind(all(|task| task.overrides.retention_dead.map(duration_number)))
        .bind(all(|task| Some(task.attempt_count.into())))
        .bind(all(|task| Some(task.redrive_count.into())))
        .bind(all(|task| Some(task.lease_expired_count.into())))
        .bind(tasks.iter().map(|task| filled(&task.progress)).collect::<Vec<_>>())
        .bind(all(|task| task.attempts.iter().map(|it| it.attempt_no.into()).max().or(Some(0))))
        .bind(histories.iter().map(|it| it.as_ref().map_or(0, |it| it.0)).collect::<Vec<_>>())
        .bind(histories.iter().map(|it| it.as_ref().map(|it| it.1.as_str())).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    if answers.len() != tasks.len() {
        return Err(corrupt("answer to an admission"));
    }
    let answers = answers.iter().zip(tasks).map(|(row, task)| {
        let status = rows::status(row.try_get("status")?)?;
        Ok(match row.try_get::<i16, _>("verdict")? {
            0 => {
                let due_in = rows::remaining(row.try_get("due_in")?);
                let status = TaskStatus::Pending;
                Admitted::Answered(Ok(Admission { created: true, status }), Some(due_in))
            }
            1 => Admitted::Answered(Ok(Admission { created: false, status }), None),
            2 => {
                let task_id = task.id.clone();
                Admitted::Answered(Err(StorageError::IdConflict { task_id }), None)
            }
            _ => Admitted::Again,
        })
    });
    answers.collect()
}

/// The weight and the text of a history that was carried over.
fn carried(task: &NewTask) -> Sql<Option<(i32, String)>> {
    if task.attempts.is_empty() {
        return Ok(None);
    }
    let kept = history::bounded(&task.attempts);
    let bytes: usize = kept.iter().map(Attempt::len_bytes).sum();
    Ok(Some((i32::try_from(bytes).unwrap_or(i32::MAX), history::encode(&kept)?)))
}

/// The instant that a moment is, if it is one.
pub(crate) fn at(moment: Moment) -> Option<i64> {
    match moment {
        Moment::At(at) => Some(at.millis()),
        Moment::In(_) => None,
    }
}

/// How long after now a moment is, if that is how it was given.
pub(crate) fn after(moment: Moment) -> Option<i64> {
    match moment {
        Moment::At(_) => None,
        Moment::In(duration) => Some(millis(duration)),
    }
}
