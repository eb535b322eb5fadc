//! Admission of tasks. The engine has checked them; the schema's function admits an id once, and
//! hands over what somebody waits for.

use crate::{
    errors::{Sql, corrupt},
    handoff::{Handoffs, Plan, Taker},
    heads::Heads,
    history,
    pool::Pool,
    rounds::{repeated, rounds},
    rows::{self, any, filled, millis},
    token::StoreId,
    waiting::Waiting,
};
use bytes::Bytes;
use futures::FutureExt as _;
use rdq_spi::{
    Admission, Attempt, Claim, Moment, NewTask, QueueName, Result, StorageError, Task, TaskStatus,
    Timestamp, duration_number,
};
use sqlx::{PgConnection, Row as _};
use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

/// How often an admission is repeated whose id was taken and given up meanwhile.
pub(crate) const TRIES_MAX: u32 = 20;

/// Admits tasks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Admissions {
    pub(crate) pool: Arc<Pool>,
    pub(crate) store_id: StoreId,
    pub(crate) heads: Arc<Heads>,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) handoffs: Arc<Handoffs>,
}

/// What became of one task.
pub(crate) enum Admitted {
    /// It is new, and due so soon.
    Created(Duration),
    /// It is new, and handed over.
    Handed { generation: i64, now: Timestamp },
    /// It was there, or cannot be.
    Answered(Result<Admission>),
    /// Its id was taken a moment ago and is free now.
    Again,
}

impl Admissions {
    /// Admits these.
    pub(crate) async fn admit(&self, tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        let Some(offer) = self.handoffs.offer(&tasks) else {
            return Ok(self.run(Arc::new(tasks), None).await?.0);
        };
        // To its end even if nobody waits for it any more: somebody else waits for what it hands
        // over.
        let this = self.clone();
        let admitting = tokio::spawn(async move {
            match this.run(Arc::new(tasks), Some(Arc::clone(&offer.plan))).await {
                Ok((answers, handed)) => {
                    offer.end(handed);
                    Ok(answers)
                }
                Err(error) => {
                    match error {
                        // What became of these tasks alone: nothing was handed over.
                        StorageError::Contention { .. } | StorageError::Refused { .. } => {
                            offer.end(Vec::new());
                        }
                        _ => offer.fail(repeated(&error, "claim_when_due")),
                    }
                    Err(error)
                }
            }
        });
        admitting.await.unwrap_or_else(|error| {
            let source = io::Error::other(error).into();
            Err(StorageError::Internal { operation: "enqueue", source })
        })
    }

    async fn run(
        &self,
        tasks: Arc<Vec<NewTask>>,
        plan: Option<Arc<Plan>>,
    ) -> Result<(Vec<Result<Admission>>, Vec<(Taker, Claim)>)> {
        let mut answers: Vec<Option<Result<Admission>>> = tasks.iter().map(|_| None).collect();
        let mut rounds: VecDeque<_> = rounds(&tasks, |task| &task.id).into();
        let mut handed = Vec::new();
        let mut hints = HashMap::new();
        let mut tries = 0;
        let mut failure = None;
        while let Some(round) = rounds.pop_front() {
            tries += 1;
            let round = Arc::new(round);
            let (indexes, all, taking) = (Arc::clone(&round), Arc::clone(&tasks), plan.clone());
            let admitted = self.pool.write("enqueue", move |db| {
                let (indexes, all) = (Arc::clone(&indexes), Arc::clone(&all));
                let taking = taking.clone();
                async move {
                    let of_round: Vec<_> =
                        indexes.iter().filter_map(|index| all.get(*index)).collect();
                    let taker = |index: &usize| taking.as_ref()?.takers[*index].as_ref();
                    let takers: Vec<_> = indexes.iter().map(taker).collect();
                    let from = taking.as_ref().map(|plan| &plan.queues[..]);
                    enqueue(db, &of_round, &takers, from).await
                }
                .boxed()
            });
            match admitted.await {
                Ok(admitted) => {
                    let mut again = Vec::new();
                    for (&index, admitted) in round.iter().zip(admitted) {
                        let task = &tasks[index];
                        let created = Ok(Admission { created: true, status: TaskStatus::Pending });
                        let answer = match admitted {
                            Admitted::Created(due_in) => {
                                self.heads.admitted(&task.queue, task.priority, at(task.due));
                                let soonest = hints.entry(&task.queue).or_insert(due_in);
                                *soonest = due_in.min(*soonest);
                                created
                            }
                            Admitted::Handed { generation, now } => {
                                let taker = plan.as_ref().and_then(|it| it.takers[index].clone());
                                if let Some(taker) = taker {
                                    let claim = self.claim_of(task, &taker, generation, now);
                                    handed.push((index, taker, claim));
                                }
                                created
                            }
                            Admitted::Answered(answer) => answer,
                            Admitted::Again if tries < TRIES_MAX => {
                                again.push(index);
                                continue;
                            }
                            Admitted::Again => {
                                Err(StorageError::Contention { operation: "enqueue" })
                            }
                        };
                        answers[index] = Some(answer);
                    }
                    if !again.is_empty() {
                        rounds.push_front(again);
                    }
                }
                // What earlier rounds did stands: only the items that are left fail.
                Err(error) => {
                    for answer in answers.iter_mut().filter(|answer| answer.is_none()) {
                        *answer = Some(Err(repeated(&error, "enqueue")));
                    }
                    failure = Some(error);
                    break;
                }
            }
        }
        for (queue, due_in) in hints {
            self.waiting.hint(queue, due_in);
        }
        let leases: HashMap<&QueueName, Duration> =
            handed.iter().map(|(index, taker, _)| (&tasks[*index].queue, taker.lease)).collect();
        for (queue, lease) in leases {
            self.waiting.hint_of_lease(queue, lease);
        }
        if let Some(failure) = failure
            && answers.iter().all(|answer| matches!(answer, Some(Err(_))))
        {
            return Err(failure);
        }
        // By priority, then due time, then admission.
        handed.sort_by_key(|(index, _, _)| {
            let task = &tasks[*index];
            (!task.priority, at(task.due).unwrap_or(i64::MAX), *index)
        });
        let handed = handed.into_iter().map(|(_, taker, claim)| (taker, claim)).collect();
        // Every item was of some round.
        Ok((answers.into_iter().flatten().collect(), handed))
    }

    /// The claim of a task that was handed over.
    fn claim_of(&self, new: &NewTask, taker: &Taker, generation: i64, now: Timestamp) -> Claim {
        let task = Task {
            id: new.id.clone(),
            queue: new.queue.clone(),
            handler_ref: new.handler_ref.clone(),
            priority: new.priority,
            envelope: new.envelope.clone(),
            overrides: new.overrides,
            status: TaskStatus::InFlight,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            progress: Bytes::new(),
            result: Bytes::new(),
            claimed_at: Some(now),
            claimed_by: Some(taker.worker_id.clone()),
            next_attempt_at: None,
            lease_expires_at: Some(now.after(taker.lease)),
            expires_at: new.expires.map(|expires| expires.resolve(now)),
            created_at: new.created_at.unwrap_or(now),
            finished_at: None,
            attempts: Vec::new(),
            last_attempt_no: 0,
        };
        Claim { task, token: self.store_id.token(generation), generation, lease: taker.lease }
    }
}

/// Admits tasks of which no two have one id. They may have takers, each its own, if nothing else is
/// due in these queues.
pub(crate) async fn enqueue(
    db: &mut PgConnection,
    tasks: &[&NewTask],
    takers: &[Option<&Taker>],
    from: Option<&[QueueName]>,
) -> Sql<Vec<Admitted>> {
    let histories = tasks.iter().map(|task| carried(task)).collect::<Sql<Vec<_>>>()?;
    let all = |of: fn(&NewTask) -> Option<i64>| any(tasks.iter().map(|task| of(task)).collect());
    let count = |of: fn(&NewTask) -> u32| {
        any(tasks.iter().map(|task| Some(i64::from(of(task))).filter(|it| *it > 0)).collect())
    };
    let text = |of: fn(&NewTask) -> &str| tasks.iter().map(|task| of(task)).collect::<Vec<_>>();
    let answers = sqlx::query(include_str!("queries/enqueue.sql"))
        .bind(text(|task| task.id.as_str()))
        .bind(text(|task| task.queue.as_str()))
        .bind(text(|task| task.handler_ref.as_str()))
        .bind(tasks.iter().map(|task| task.priority).collect::<Vec<_>>())
        .bind(all(|task| at(task.due)))
        .bind(all(|task| after(task.due).filter(|delay| *delay > 0)))
        .bind(all(|task| task.expires.and_then(at)))
        .bind(all(|task| task.expires.and_then(after)))
        .bind(all(|task| task.created_at.map(Timestamp::millis)))
        .bind(tasks.iter().map(|task| &task.envelope[..]).collect::<Vec<_>>())
        .bind(all(|task| task.overrides.max_attempts.map(i64::from)))
        .bind(all(|task| task.overrides.lease.map(duration_number)))
        .bind(all(|task| task.overrides.initial_backoff.map(duration_number)))
        .bind(all(|task| task.overrides.retention_dead.map(duration_number)))
        .bind(count(|task| task.attempt_count))
        .bind(count(|task| task.redrive_count))
        .bind(count(|task| task.lease_expired_count))
        .bind(any(tasks.iter().map(|task| filled(&task.progress)).collect()))
        .bind(all(|task| task.attempts.iter().map(|it| it.attempt_no.into()).max()))
        .bind(any(histories.iter().map(|it| it.as_ref().map(|it| it.0)).collect()))
        .bind(any(histories.iter().map(|it| it.as_ref().map(|it| it.1.as_str())).collect()))
        .bind(any(takers.iter().map(|taker| taker.map(|it| it.worker_id.as_str())).collect()))
        .bind(any(takers.iter().map(|taker| taker.map(|it| millis(it.lease))).collect()))
        .bind(from.map(|from| from.iter().map(QueueName::as_str).collect::<Vec<_>>()))
        .fetch_all(db)
        .await?;
    if answers.len() != tasks.len() {
        return Err(corrupt("answer to an admission"));
    }
    let answers = answers.iter().zip(tasks).map(|(row, task)| {
        Ok(match row.try_get::<i16, _>("verdict")? {
            0 => match row.try_get("generation")? {
                Some(generation) => {
                    let now = Timestamp::from_millis(row.try_get("now")?);
                    Admitted::Handed { generation, now }
                }
                None => Admitted::Created(rows::remaining(row.try_get("due_in")?)),
            },
            1 => {
                let status = rows::status(row.try_get("status")?)?;
                Admitted::Answered(Ok(Admission { created: false, status }))
            }
            2 => {
                let task_id = task.id.clone();
                Admitted::Answered(Err(StorageError::IdConflict { task_id }))
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
