//! The simulated system: tasks, claims and a clock, by the rules, but for one bug.

use rdq_compliance::{
    Random,
    history::{Answer, Grant, Operation, Outcome},
};
use rdq_spi::{Call, ClaimToken, TaskId, TaskStatus, Timestamp};
use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

pub(crate) const LEASE: Duration = Duration::from_millis(60);
pub(crate) const MAX_ATTEMPTS: u32 = 5;

/// What is wrong with the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Nothing.
    None,
    /// Any token of the task will do.
    TokensNotCompared,
    /// A claim that runs is handed out again, now and then.
    LiveClaimsHandedOut,
    /// A heartbeat is acknowledged and not stored.
    HeartbeatsNotStored,
    /// Some claims are decided by a clock that is ahead, with instants of the other one.
    TwoClocks,
    /// An acknowledged task is not stored, now and then.
    AcknowledgedTasksDropped,
    /// A completed task is due again, now and then.
    CompletionsForgotten,
    /// The due time is not looked at.
    ClaimsBeforeDue,
    /// Generations start again with each retry.
    GenerationsRestart,
    /// A reclaim appends nothing.
    LapsesNotCounted,
    /// Nobody counts the attempts.
    AttemptsUnbounded,
    /// A task is stored twice, under another id.
    TasksDoubled,
    /// Strict heartbeats are taken as lenient ones.
    StrictIgnored,
    /// A spent token is a replay, whatever the call.
    AnythingReplays,
    /// A cancelled task is due again, now and then.
    CancelledTasksGoOn,
}

#[derive(Debug)]
struct Row {
    status: TaskStatus,
    due: Timestamp,
    generation: i64,
    /// The newest claim's, good or spent.
    token: ClaimToken,
    spent_by: Option<Call>,
    attempt_count: u32,
    records: u32,
}

pub(crate) struct System {
    bug: Bug,
    now: i64,
    minted: u64,
    rows: BTreeMap<TaskId, Row>,
}

impl System {
    pub(crate) fn new(bug: Bug, seed: u64) -> Self {
        Self { bug, now: 1_000_000, minted: seed << 32, rows: BTreeMap::new() }
    }

    pub(crate) fn pass(&mut self, millis: usize) {
        self.now += i64::try_from(millis).expect("small");
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    pub(crate) fn states(&self) -> HashMap<TaskId, TaskStatus> {
        self.rows.iter().map(|(id, row)| (id.clone(), row.status)).collect()
    }

    pub(crate) fn apply(&mut self, operation: &Operation, random: &mut Random) -> Answer {
        match operation {
            Operation::Enqueue { task, due } => self.enqueue(task, *due, random),
            Operation::Claim => self.claim(random),
            Operation::Extend { task, token, lease, strict } => {
                self.extend(task, token, *lease, *strict)
            }
            Operation::Resolve { task, token, call } => self.resolve(task, token, *call, random),
            Operation::Cancel { task } => self.cancel(task, random),
            Operation::Redrive { .. } | Operation::Expire | Operation::Remove { .. } => {
                Answer::Refused
            }
        }
    }

    fn enqueue(&mut self, task: &TaskId, due: Option<Timestamp>, random: &mut Random) -> Answer {
        let ok = Answer::Ok(Outcome::Enqueued { created: true });
        if self.bug == Bug::AcknowledgedTasksDropped && random.percent(10) {
            return ok;
        }
        let token = self.mint();
        let row = || Row {
            status: TaskStatus::Pending,
            due: due.unwrap_or(Timestamp::from_millis(self.now)),
            generation: 0,
            token: token.clone(),
            spent_by: None,
            attempt_count: 0,
            records: 0,
        };
        if self.bug == Bug::TasksDoubled && random.percent(10) {
            let other = TaskId::new(format!("{task}-again")).expect("an id");
            self.rows.insert(other, row());
        }
        self.rows.insert(task.clone(), row());
        ok
    }

    fn claim(&mut self, random: &mut Random) -> Answer {
        let (bug, mut now) = (self.bug, self.now());
        if bug == Bug::TwoClocks && random.percent(30) {
            now = now.after(Duration::from_millis(40));
        }
        let hasty = bug == Bug::LiveClaimsHandedOut && random.percent(20);
        let due = |row: &Row| match row.status {
            TaskStatus::Pending => row.due <= now || bug == Bug::ClaimsBeforeDue,
            TaskStatus::InFlight => row.due <= now || hasty,
            _ => false,
        };
        let Some((id, row)) =
            self.rows.iter_mut().filter(|(_, row)| due(row)).min_by_key(|it| it.1.due)
        else {
            return Answer::Ok(Outcome::Claimed(Vec::new()));
        };
        if row.status == TaskStatus::InFlight && bug != Bug::LapsesNotCounted {
            row.attempt_count += 1;
            row.records += 1;
        }
        if row.attempt_count >= MAX_ATTEMPTS && bug != Bug::AttemptsUnbounded {
            (row.status, row.spent_by) = (TaskStatus::Dead, None);
            self.minted += 1;
            row.token = ClaimToken(self.minted.to_le_bytes().to_vec().into());
            return Answer::Ok(Outcome::Claimed(Vec::new()));
        }
        self.minted += 1;
        row.generation += 1;
        row.token = ClaimToken(self.minted.to_le_bytes().to_vec().into());
        (row.status, row.spent_by) = (TaskStatus::InFlight, None);
        let claimed_at = Timestamp::from_millis(self.now);
        row.due = claimed_at.after(LEASE);
        Answer::Ok(Outcome::Claimed(vec![Grant {
            task: id.clone(),
            token: row.token.clone(),
            generation: row.generation,
            attempt_no: row.records + 1,
            attempt_count: row.attempt_count,
            claimed_at,
            lease_expires_at: row.due,
        }]))
    }

    fn extend(
        &mut self,
        task: &TaskId,
        token: &ClaimToken,
        lease: Duration,
        strict: bool,
    ) -> Answer {
        let (now, bug) = (self.now(), self.bug);
        let Some(row) = self.rows.get_mut(task) else { return Answer::Refused };
        let mine = row.token == *token || bug == Bug::TokensNotCompared;
        let lapsed = strict && bug != Bug::StrictIgnored && row.due <= now;
        if row.status != TaskStatus::InFlight || !mine || lapsed {
            return Answer::Refused;
        }
        let lease_expires_at = now.after(lease);
        if bug != Bug::HeartbeatsNotStored {
            row.due = lease_expires_at;
        }
        Answer::Ok(Outcome::Extended { lease_expires_at })
    }

    fn resolve(
        &mut self,
        task: &TaskId,
        token: &ClaimToken,
        call: Call,
        random: &mut Random,
    ) -> Answer {
        let (now, bug) = (self.now(), self.bug);
        let Some(row) = self.rows.get_mut(task) else { return Answer::Refused };
        let mine = row.token == *token || bug == Bug::TokensNotCompared;
        let replay =
            row.spent_by == Some(call) || (bug == Bug::AnythingReplays && row.spent_by.is_some());
        let status = match call {
            Call::Complete => TaskStatus::Succeeded,
            Call::DeadLetter => TaskStatus::Dead,
            Call::Reschedule | Call::Fail | Call::Release => TaskStatus::Pending,
        };
        if mine && replay {
            let next_attempt_at = (status == TaskStatus::Pending).then_some(row.due);
            return Answer::Ok(Outcome::Resolved { status, next_attempt_at, replayed: true });
        }
        if row.status != TaskStatus::InFlight || !mine {
            return Answer::Refused;
        }
        if call != Call::Release {
            row.attempt_count += 1;
            row.records += 1;
        }
        row.status = status;
        row.spent_by = Some(call);
        row.due = now.after(Duration::from_millis(random.next_u64() % 50));
        if bug == Bug::GenerationsRestart && call == Call::Reschedule {
            row.generation = 0;
        }
        if bug == Bug::CompletionsForgotten && call == Call::Complete && random.percent(20) {
            row.status = TaskStatus::Pending;
        }
        let next_attempt_at = (status == TaskStatus::Pending).then_some(row.due);
        Answer::Ok(Outcome::Resolved { status, next_attempt_at, replayed: false })
    }

    fn cancel(&mut self, task: &TaskId, random: &mut Random) -> Answer {
        let Some(row) = self.rows.get_mut(task) else { return Answer::Refused };
        let changed = !row.status.is_terminal();
        if changed {
            row.status = TaskStatus::Cancelled;
        }
        if changed && self.bug == Bug::CancelledTasksGoOn && random.percent(60) {
            row.status = TaskStatus::Pending;
        }
        let status = if changed { TaskStatus::Cancelled } else { row.status };
        Answer::Ok(Outcome::Cancelled { status, changed })
    }

    fn mint(&mut self) -> ClaimToken {
        self.minted += 1;
        ClaimToken(self.minted.to_le_bytes().to_vec().into())
    }
}
