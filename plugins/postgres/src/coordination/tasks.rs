//! Tasks within a transaction: the statements that the storage's own calls run, on a connection that
//! is given, and what those who wait are to be told once it is committed.

use crate::{
    admission::{self, Admitted},
    errors::{Sql, corrupt},
    heads::Heads,
    holding,
    notifier::WORTH_TELLING,
    reads,
    token::StoreId,
    waiting::Waiting,
};
use rdq_spi::{
    Admission, Cancelled, ClaimToken, HeldClaim, NewTask, QueueName, Resolution, Resolved, Result,
    StorageError, Task, TaskId, TaskStatus,
};
use sqlx::{PgConnection, Row as _};
use std::{collections::HashMap, time::Duration};

/// Tasks that a transaction made due.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dues(Vec<Due>);

#[derive(Debug, Clone)]
#[allow(clippy::struct_field_names, reason = "how soon something is due is `due_in` everywhere")]
struct Due {
    queue: QueueName,
    due_in: Duration,
    /// Of an admitted task: its priority, and when it is due if that is not now.
    admitted: Option<(i32, Option<i64>)>,
}

impl Dues {
    /// Those of one transaction.
    pub(crate) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Tells who waits, after the commit.
    pub(crate) fn tell(&self, heads: &Heads, waiting: &Waiting) {
        for Due { queue, due_in, admitted } in &self.0 {
            match *admitted {
                Some((priority, at)) => heads.admitted(queue, priority, at),
                None if due_in.is_zero() => heads.disturb(queue),
                None => {}
            }
            waiting.hint(queue, *due_in);
        }
    }

    /// How soon something of each queue is due, where other servers are to be told.
    pub(crate) fn worth_telling(&self) -> HashMap<QueueName, Duration> {
        let mut soonest = HashMap::new();
        for Due { queue, due_in, .. } in self.0.iter().filter(|due| due.due_in < WORTH_TELLING) {
            let due = soonest.entry(queue.clone()).or_insert(*due_in);
            *due = (*due).min(*due_in);
        }
        soonest
    }
}

/// Admits tasks without two of one id.
pub(crate) async fn enqueue(
    db: &mut PgConnection,
    tasks: &[&NewTask],
    dues: &mut Dues,
) -> Sql<Vec<Result<Admission>>> {
    let mut answers: Vec<_> =
        tasks.iter().map(|_| Err(StorageError::Contention { operation: "enqueue" })).collect();
    let mut left: Vec<_> = (0..tasks.len()).collect();
    for _ in 0..admission::TRIES_MAX {
        let of_round: Vec<_> = left.iter().map(|index| tasks[*index]).collect();
        let admitted = admission::enqueue(db, &of_round, &[], None).await?;
        let mut again = Vec::new();
        for (index, admitted) in left.into_iter().zip(admitted) {
            match admitted {
                Admitted::Created(due_in) => {
                    let NewTask { queue, priority, due, .. } = tasks[index];
                    let admitted = Some((*priority, admission::at(*due)));
                    dues.0.push(Due { queue: queue.clone(), due_in, admitted });
                    answers[index] = Ok(Admission { created: true, status: TaskStatus::Pending });
                }
                Admitted::Answered(answer) => answers[index] = answer,
                // Nobody takes what is not committed.
                Admitted::Handed { .. } => return Err(corrupt("answer to an admission")),
                Admitted::Again => again.push(index),
            }
        }
        left = again;
        if left.is_empty() {
            break;
        }
    }
    Ok(answers)
}

/// Ends tasks for good, none twice.
pub(crate) async fn cancel(
    db: &mut PgConnection,
    tasks: &[&TaskId],
) -> Sql<Vec<Result<Cancelled>>> {
    let answers = holding::cancel(db, tasks).await?;
    Ok(answers.into_iter().map(|(answer, _)| answer).collect())
}

/// Ends claims, none twice of one task.
pub(crate) async fn resolve(
    db: &mut PgConnection,
    store_id: StoreId,
    resolutions: &[&Resolution],
    dues: &mut Dues,
) -> Sql<Vec<Result<Resolved>>> {
    let answers = holding::resolve(db, store_id, resolutions).await?;
    let answers = answers.into_iter().map(|(answer, due)| {
        dues.0.extend(due.map(|(queue, due_in)| Due { queue, due_in, admitted: None }));
        answer
    });
    Ok(answers.collect())
}

/// One task, whole.
pub(crate) async fn get(db: &mut PgConnection, task: &TaskId) -> Sql<Result<Task>> {
    let found = reads::get(db, task).await?;
    Ok(found.ok_or_else(|| StorageError::NotFound { task_id: task.clone() }))
}

/// The tokens of claims that are their task's newest.
pub(crate) async fn claims_of(
    db: &mut PgConnection,
    store_id: StoreId,
    claims: &[HeldClaim],
) -> Sql<Vec<Option<ClaimToken>>> {
    let rows = sqlx::query(include_str!("../queries/claims_of.sql"))
        .bind(claims.iter().map(|claim| claim.task_id.as_str()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.worker_id.as_str()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.generation).collect::<Vec<_>>())
        .fetch_all(db)
        .await?;
    let tokens = rows.iter().zip(claims).map(|(row, claim)| {
        let is_newest: bool = row.try_get("is_newest")?;
        Ok(is_newest.then(|| store_id.token(claim.generation)))
    });
    tokens.collect()
}

/// The database's clock, in milliseconds.
pub(crate) async fn now(db: &mut PgConnection) -> Sql<i64> {
    sqlx::query("SELECT clock_ms() AS now").fetch_one(db).await?.try_get("now")
}
