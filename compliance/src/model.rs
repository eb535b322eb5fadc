//! The rules of a task's life as a plain data structure: what a storage must answer, without any
//! database, concurrency or clock. It learns instants from the storage, and never computes one.

use rdq_spi::{
    Attempt, AttemptError, AttemptOutcome, AttemptReport, Call, ClaimToken, NewTask, Outcome,
    QueueName, StaleDetail, Task, TaskId, TaskStatus, Timestamp, WorkerId,
};
use std::{cmp::Reverse, collections::HashMap};

/// Why the model refuses a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A stale claim, and what ended it, if the token is the one it ended.
    Stale(Option<StaleDetail>),
    /// No such task.
    NotFound,
    /// The id is taken in another queue.
    IdConflict,
}

/// Every task of the story.
#[derive(Debug, Default)]
pub(crate) struct Model {
    tasks: HashMap<TaskId, Row>,
    admissions: u64,
    deaths: u64,
}

/// A task as the rules see it.
#[derive(Debug, Clone)]
struct Row {
    sent: NewTask,
    admission: u64,
    death: u64,
    status: TaskStatus,
    /// Of a pending task its due time, of one in flight its lease's end; learned.
    due: Timestamp,
    lapsed: bool,
    claim: Option<Holder>,
    attempt_count: u32,
    redrive_count: u32,
    lease_expired_count: u32,
    attempts: Vec<Record>,
    progress: bytes::Bytes,
    result: bytes::Bytes,
}

/// The newest claim, live or spent.
#[derive(Debug, Clone)]
struct Holder {
    token: ClaimToken,
    worker: WorkerId,
    end: Option<End>,
}

/// What ended a claim.
#[derive(Debug, Clone, Copy)]
enum End {
    Resolved(Call, TaskStatus),
    Taken(StaleDetail),
    /// A redrive, which forgets the rest.
    Forgotten,
}

/// A record without its instants.
#[derive(Debug, Clone, PartialEq)]
struct Record {
    attempt_no: u32,
    outcome: Option<AttemptOutcome>,
    worker: Option<WorkerId>,
    error: Option<AttemptError>,
    extra: bytes::Bytes,
}

impl Model {
    /// Whether the admission creates, and the task's status.
    pub(crate) fn enqueue(&mut self, new: &NewTask) -> Result<(bool, TaskStatus), Refusal> {
        if let Some(row) = self.tasks.get(&new.id) {
            let known = row.sent.queue == new.queue;
            return if known { Ok((false, row.status)) } else { Err(Refusal::IdConflict) };
        }
        self.admissions += 1;
        let row = Row {
            sent: new.clone(),
            admission: self.admissions,
            death: 0,
            status: TaskStatus::Pending,
            due: Timestamp::MIN,
            lapsed: false,
            claim: None,
            attempt_count: 0,
            redrive_count: 0,
            lease_expired_count: 0,
            attempts: Vec::new(),
            progress: new.progress.clone(),
            result: bytes::Bytes::new(),
        };
        self.tasks.insert(new.id.clone(), row);
        Ok((true, TaskStatus::Pending))
    }

    /// Whom a claim takes, in order. The model knows which leases have lapsed: the story says.
    pub(crate) fn due(&self, queue: &QueueName, limit: usize, now: Timestamp) -> Vec<TaskId> {
        let due = |row: &&Row| {
            row.sent.queue == *queue
                && match row.status {
                    TaskStatus::Pending => row.due <= now,
                    TaskStatus::InFlight => row.lapsed,
                    _ => false,
                }
        };
        let mut rows: Vec<_> = self.tasks.values().filter(due).collect();
        rows.sort_by_key(|row| (Reverse(row.sent.priority), row.due, row.admission));
        rows.iter().take(limit).map(|row| row.sent.id.clone()).collect()
    }

    /// The claim was taken.
    pub(crate) fn claim(&mut self, id: &TaskId, token: &ClaimToken, worker: &WorkerId) {
        let row = self.tasks.get_mut(id).expect("only what is due is claimed");
        if row.status == TaskStatus::InFlight {
            row.lease_expired_count += 1;
            let error =
                AttemptError { error_type: AttemptError::LEASE_EXPIRED.into(), ..<_>::default() };
            row.append(AttemptOutcome::LeaseExpired, Some(error), bytes::Bytes::new());
        }
        (row.status, row.lapsed) = (TaskStatus::InFlight, false);
        row.claim = Some(Holder { token: token.clone(), worker: worker.clone(), end: None });
    }

    /// Enough time passed for the task's lease to run out.
    pub(crate) fn lapse(&mut self, id: &TaskId) {
        self.tasks.get_mut(id).expect("claimed").lapsed = true;
    }

    /// A heartbeat that outlasts the story.
    pub(crate) fn extend(
        &mut self,
        id: &TaskId,
        token: &ClaimToken,
        progress: Option<bytes::Bytes>,
    ) -> Result<(), Refusal> {
        let row = self.tasks.get_mut(id).ok_or(Refusal::NotFound)?;
        match row.holder(token)?.end {
            None => {}
            Some(End::Taken(detail)) => return Err(Refusal::Stale(Some(detail))),
            Some(_) => return Err(Refusal::Stale(None)),
        }
        row.lapsed = false;
        row.progress = progress.unwrap_or_else(|| row.progress.clone());
        Ok(())
    }

    /// The status that the call leads to, and whether it is a repetition.
    pub(crate) fn resolve(
        &mut self,
        id: &TaskId,
        token: &ClaimToken,
        call: Call,
        outcome: &Outcome,
    ) -> Result<(TaskStatus, bool), Refusal> {
        let deaths = self.deaths + 1;
        let row = self.tasks.get_mut(id).ok_or(Refusal::NotFound)?;
        match row.holder(token)?.end {
            None => {}
            Some(End::Resolved(done, status)) if done == call => return Ok((status, true)),
            Some(End::Taken(detail)) => return Err(Refusal::Stale(Some(detail))),
            Some(_) => return Err(Refusal::Stale(None)),
        }
        row.lapsed = false;
        let reported = |report: &AttemptReport| (report.error.clone(), report.extra.clone());
        row.status = match outcome {
            Outcome::Succeed { attempt, result, .. } => {
                let (error, extra) = reported(attempt);
                row.append(AttemptOutcome::Success, error, extra);
                row.result = result.clone();
                TaskStatus::Succeeded
            }
            Outcome::Retry { attempt, .. } => {
                let (error, extra) = reported(attempt);
                row.append(AttemptOutcome::RetryableFailure, error, extra);
                TaskStatus::Pending
            }
            Outcome::Die { attempt } => {
                let (error, extra) = reported(attempt);
                row.append(AttemptOutcome::PermanentFailure, error, extra);
                (self.deaths, row.death) = (deaths, deaths);
                TaskStatus::Dead
            }
            Outcome::GiveBack { .. } => TaskStatus::Pending,
        };
        row.end(End::Resolved(call, row.status));
        Ok((row.status, false))
    }

    /// The task's status, and whether this call changed it.
    pub(crate) fn cancel(&mut self, id: &TaskId) -> Result<(TaskStatus, bool), Refusal> {
        let row = self.tasks.get_mut(id).ok_or(Refusal::NotFound)?;
        if row.status.is_terminal() {
            return Ok((row.status, false));
        }
        if row.status == TaskStatus::InFlight {
            row.append(AttemptOutcome::Cancelled, None, bytes::Bytes::new());
            row.end(End::Taken(StaleDetail::Cancelled));
        }
        (row.status, row.lapsed) = (TaskStatus::Cancelled, false);
        Ok((row.status, true))
    }

    /// The dead letters of a queue, newest first.
    pub(crate) fn dead_letters(&self, queue: &QueueName) -> Vec<TaskId> {
        let mut rows = self.of(queue, |row| row.status == TaskStatus::Dead);
        rows.sort_by_key(|row| Reverse(row.death));
        rows.iter().map(|row| row.sent.id.clone()).collect()
    }

    /// The tasks of a queue, newest first.
    pub(crate) fn list(&self, queue: &QueueName) -> Vec<TaskId> {
        let mut rows = self.of(queue, |_| true);
        rows.sort_by_key(|row| Reverse(row.admission));
        rows.iter().map(|row| row.sent.id.clone()).collect()
    }

    /// How many tasks of a queue are in a status.
    pub(crate) fn count(&self, queue: &QueueName, status: TaskStatus) -> u64 {
        u64::try_from(self.of(queue, |row| row.status == status).len()).expect("few")
    }

    /// These dead letters are pending again.
    pub(crate) fn redrive(&mut self, ids: &[TaskId]) {
        for id in ids {
            let row = self.tasks.get_mut(id).expect("a dead letter");
            row.status = TaskStatus::Pending;
            row.attempt_count = 0;
            row.redrive_count += 1;
            row.end(End::Forgotten);
        }
    }

    /// These dead letters are gone.
    pub(crate) fn purge(&mut self, ids: &[TaskId]) {
        for id in ids {
            self.tasks.remove(id);
        }
    }

    /// Compares a task with what the storage says of it, and learns its instants.
    pub(crate) fn compare(&mut self, id: &TaskId, found: Option<&Task>) {
        let row = self.tasks.get_mut(id);
        assert_eq!(found.is_some(), row.is_some(), "whether there is a task {id}");
        let (Some(row), Some(task)) = (row, found) else { return };
        assert_eq!(task.status, row.status, "{task:?}");
        assert_eq!((&task.queue, task.priority), (&row.sent.queue, row.sent.priority));
        assert_eq!(task.envelope, row.sent.envelope);
        let counts = (task.attempt_count, task.redrive_count, task.lease_expired_count);
        assert_eq!(
            counts,
            (row.attempt_count, row.redrive_count, row.lease_expired_count),
            "{task:?}"
        );
        assert_eq!((&task.progress, &task.result), (&row.progress, &row.result));
        assert_eq!(task.attempts.iter().map(Record::of).collect::<Vec<_>>(), row.attempts);
        let in_flight = row.status == TaskStatus::InFlight;
        let worker = row.claim.as_ref().filter(|_| in_flight).map(|holder| &holder.worker);
        assert_eq!(task.claimed_by.as_ref(), worker);
        assert_eq!(task.claimed_at.is_some(), in_flight);
        assert_eq!(task.lease_expires_at.is_some(), in_flight);
        assert_eq!(task.next_attempt_at.is_some(), row.status == TaskStatus::Pending);
        assert_eq!(task.finished_at.is_some(), row.status.is_terminal());
        row.due = task.next_attempt_at.or(task.lease_expires_at).unwrap_or(row.due);
    }

    fn of(&self, queue: &QueueName, keep: impl Fn(&Row) -> bool) -> Vec<&Row> {
        self.tasks.values().filter(|row| row.sent.queue == *queue && keep(row)).collect()
    }
}

impl Row {
    fn append(
        &mut self,
        outcome: AttemptOutcome,
        error: Option<AttemptError>,
        extra: bytes::Bytes,
    ) {
        self.attempt_count += 1;
        let attempt_no = self.attempts.last().map_or(0, |record| record.attempt_no) + 1;
        let worker = self.claim.as_ref().map(|holder| holder.worker.clone());
        let outcome = Some(outcome);
        self.attempts.push(Record { attempt_no, outcome, worker, error, extra });
    }

    fn holder(&self, token: &ClaimToken) -> Result<&Holder, Refusal> {
        self.claim.as_ref().filter(|it| it.token == *token).ok_or(Refusal::Stale(None))
    }

    fn end(&mut self, end: End) {
        if let Some(holder) = &mut self.claim {
            holder.end = Some(end);
        }
    }
}

impl Record {
    fn of(attempt: &Attempt) -> Self {
        // What a lapse or a cancellation says in words is the storage's own.
        let own = matches!(
            attempt.outcome,
            Some(AttemptOutcome::LeaseExpired | AttemptOutcome::Cancelled)
        );
        let error = match (&attempt.error, attempt.outcome) {
            (Some(error), Some(AttemptOutcome::LeaseExpired)) => {
                Some(AttemptError { error_type: error.error_type.clone(), ..<_>::default() })
            }
            (error, _) => error.clone().filter(|_| !own),
        };
        Self {
            attempt_no: attempt.attempt_no,
            outcome: attempt.outcome,
            worker: attempt.worker_id.clone(),
            error,
            extra: attempt.extra.clone(),
        }
    }
}
