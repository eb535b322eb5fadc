//! What a holder does with its claim: keep it or end it. And a cancellation, which ends it for it.
//! Each takes a batch without two of one task.

use crate::{
    admission::{after, at},
    errors::{Sql, corrupt},
    rows::{self, any, filled, millis},
    token::StoreId,
};
use rdq_spi::{
    AttemptError, AttemptReport, Cancelled, ClaimRef, ExtendParams, Extended, Outcome, QueueName,
    Resolution, Resolved, Result, StaleDetail, StorageError, TaskId, TaskStatus, Timestamp,
};
use sqlx::{PgConnection, Row as _, postgres::PgRow};
use std::time::Duration;

/// An answer, and where something will be due, if so.
pub(crate) type Answered<T> = (Result<T>, Option<(QueueName, Duration)>);

/// Ends claims.
pub(crate) async fn resolve(
    db: &mut PgConnection,
    store_id: StoreId,
    resolutions: &[&Resolution],
) -> Sql<Vec<Answered<Resolved>>> {
    let text = |of: fn(&AttemptError) -> &String| {
        let errors = resolutions.iter().map(|it| report(it)?.error.as_ref());
        any(errors.map(|error| error.map(|error| of(error).as_str())).collect())
    };
    let moments = |of: fn(rdq_spi::Moment) -> Option<i64>| {
        any(resolutions.iter().map(|it| due(it).and_then(of)).collect())
    };
    let answers = sqlx::query(include_str!("queries/resolve.sql"))
        .bind(resolutions.iter().map(|it| it.claim.task_id.as_str()).collect::<Vec<_>>())
        .bind(resolutions.iter().map(|it| store_id.generation(&it.claim.token)).collect::<Vec<_>>())
        .bind(resolutions.iter().map(|it| i16::from(it.call.number())).collect::<Vec<_>>())
        .bind(resolutions.iter().map(|it| kind(&it.outcome)).collect::<Vec<_>>())
        .bind(
            resolutions
                .iter()
                .any(|it| it.strict)
                .then(|| resolutions.iter().map(|it| it.strict).collect::<Vec<_>>()),
        )
        .bind(resolutions.iter().map(|it| is_plain(it)).collect::<Vec<_>>())
        .bind(moments(at))
        .bind(moments(after))
        .bind(any(resolutions.iter().map(|it| result(it)).collect()))
        .bind(text(|error| &error.error_type))
        .bind(text(|error| &error.message))
        .bind(text(|error| &error.detail))
        .bind(text(|error| &error.stack))
        .bind(any(resolutions.iter().map(|it| filled(&report(it)?.extra)).collect()))
        .fetch_all(db)
        .await?;
    each(&answers, resolutions, |row, resolution| {
        let verdict: i16 = row.try_get("verdict")?;
        if verdict != 0 && verdict != 5 {
            return Ok((Err(refusal(verdict, &resolution.claim)), None));
        }
        let status = rows::status(row.try_get("status")?)?;
        let next_attempt_at = rows::timestamp(row, "next_attempt_at")?;
        let resolved = Resolved {
            status,
            next_attempt_at: next_attempt_at.filter(|_| status == TaskStatus::Pending),
            replayed: verdict == 5,
        };
        Ok((Ok(resolved), hint(row, "due_in")?))
    })
}

/// Keeps claims.
pub(crate) async fn extend(
    db: &mut PgConnection,
    store_id: StoreId,
    leases: &[&ExtendParams],
) -> Sql<Vec<Answered<Extended>>> {
    let answers = sqlx::query(include_str!("queries/extend.sql"))
        .bind(leases.iter().map(|it| it.claim.task_id.as_str()).collect::<Vec<_>>())
        .bind(leases.iter().map(|it| store_id.generation(&it.claim.token)).collect::<Vec<_>>())
        .bind(leases.iter().map(|it| millis(it.lease)).collect::<Vec<_>>())
        .bind(leases.iter().map(|it| it.held_max.map(millis)).collect::<Vec<_>>())
        .bind(leases.iter().map(|it| it.progress.as_deref()).collect::<Vec<_>>())
        .bind(leases.iter().map(|it| it.strict).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    each(&answers, leases, |row, lease| {
        let verdict: i16 = row.try_get("verdict")?;
        if verdict != 0 {
            return Ok((Err(refusal(verdict, &lease.claim)), None));
        }
        let extended = Extended {
            lease_expires_at: Timestamp::from_millis(row.try_get("lease_expires_at")?),
            remaining: rows::remaining(row.try_get("remaining")?),
        };
        Ok((Ok(extended), hint(row, "remaining")?))
    })
}

/// Ends tasks for good, whoever holds them.
pub(crate) async fn cancel(
    db: &mut PgConnection,
    tasks: &[&TaskId],
) -> Sql<Vec<Answered<Cancelled>>> {
    let answers = sqlx::query(include_str!("queries/cancel.sql"))
        .bind(tasks.iter().map(|task| task.as_str()).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    each(&answers, tasks, |row, task| {
        let verdict: i16 = row.try_get("verdict")?;
        if verdict == 1 {
            let task_id = (*task).clone();
            return Ok((Err(StorageError::NotFound { task_id }), None));
        }
        let status = rows::status(row.try_get("status")?)?;
        Ok((Ok(Cancelled { status, changed: verdict == 0 }), None))
    })
}

fn each<T, U>(answers: &[PgRow], items: &[T], read: impl Fn(&PgRow, &T) -> Sql<U>) -> Sql<Vec<U>> {
    if answers.len() != items.len() {
        return Err(corrupt("answer to a batch"));
    }
    answers.iter().zip(items).map(|(row, item)| read(row, item)).collect()
}

fn hint(row: &PgRow, column: &str) -> Sql<Option<(QueueName, Duration)>> {
    let due_in: Option<i64> = row.try_get(column)?;
    let Some(due_in) = due_in else { return Ok(None) };
    Ok(Some((QueueName::stored(row.try_get::<&str, _>("queue")?), rows::remaining(due_in))))
}

fn refusal(verdict: i16, claim: &ClaimRef) -> StorageError {
    let task_id = claim.task_id.clone();
    let detail = match verdict {
        1 => return StorageError::NotFound { task_id },
        3 => Some(StaleDetail::Cancelled),
        4 => Some(StaleDetail::Expired),
        _ => None,
    };
    StorageError::StaleClaim { task_id, detail }
}

fn kind(outcome: &Outcome) -> i16 {
    match outcome {
        Outcome::Succeed { forget: false, .. } => 0,
        Outcome::Retry { .. } => 1,
        Outcome::Die { .. } => 2,
        Outcome::GiveBack { .. } => 3,
        Outcome::Succeed { forget: true, .. } => 4,
    }
}

fn report(resolution: &Resolution) -> Option<&AttemptReport> {
    match &resolution.outcome {
        Outcome::Succeed { attempt, .. }
        | Outcome::Retry { attempt, .. }
        | Outcome::Die { attempt } => Some(attempt),
        Outcome::GiveBack { .. } => None,
    }
}

fn due(resolution: &Resolution) -> Option<rdq_spi::Moment> {
    match resolution.outcome {
        Outcome::Retry { due, .. } | Outcome::GiveBack { due } => Some(due),
        Outcome::Succeed { .. } | Outcome::Die { .. } => None,
    }
}

fn result(resolution: &Resolution) -> Option<&[u8]> {
    match &resolution.outcome {
        Outcome::Succeed { result, .. } => filled(result),
        Outcome::Retry { .. } | Outcome::Die { .. } | Outcome::GiveBack { .. } => None,
    }
}

/// Whether it leaves no record, or one of a success with nothing to tell.
fn is_plain(resolution: &Resolution) -> bool {
    match &resolution.outcome {
        Outcome::Succeed { attempt, forget, .. } => {
            *forget || attempt.error.is_none() && attempt.extra.is_empty()
        }
        Outcome::Retry { .. } | Outcome::Die { .. } => false,
        Outcome::GiveBack { .. } => true,
    }
}
