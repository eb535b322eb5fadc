//! How claims end by their holder's word.

use crate::{
    admission::detach,
    entry::{Entry, Past, Standing},
    state::{Counters, State},
};
use rdq_spi::{
    AttemptOutcome, AttemptReport, Outcome, Resolution, Resolved, Result, TaskStatus, Timestamp,
};

impl State {
    pub(crate) fn resolve(&mut self, resolution: Resolution, now: Timestamp) -> Result<Resolved> {
        let Resolution { claim, call, outcome, strict } = resolution;
        let entry = self.find(&claim.task_id)?;
        match entry.standing(self.run.read(&claim.token)) {
            Standing::Holds if strict && entry.lapsed(now) => return Err(entry.stale(None)),
            Standing::Holds => {}
            Standing::Over(Past::Resolved(first, answer)) if first == call => {
                return Ok(Resolved { replayed: true, ..answer });
            }
            Standing::Over(past) => return Err(entry.stale(past.detail())),
            Standing::Superseded => return Err(entry.stale(None)),
        }
        let admitted = entry.admitted;
        if matches!(outcome, Outcome::Succeed { forget: true, .. }) {
            self.remove(admitted);
            let status = TaskStatus::Succeeded;
            return Ok(Resolved { status, next_attempt_at: None, replayed: false });
        }
        let resolved = self.change(admitted, now, |entry, counters| {
            apply(entry, counters, outcome, now);
            let status = entry.task.status;
            let next_attempt_at = entry.task.next_attempt_at;
            let resolved = Resolved { status, next_attempt_at, replayed: false };
            entry.past = Some(Past::Resolved(call, resolved));
            resolved
        });
        Ok(resolved.expect("a task that was found is there under the same lock"))
    }
}

fn apply(entry: &mut Entry, counters: &mut Counters, outcome: Outcome, now: Timestamp) {
    match outcome {
        Outcome::Succeed { attempt, mut result, forget: _ } => {
            entry.append(AttemptOutcome::Success, detached(attempt), now);
            detach(&mut result);
            entry.task.result = result;
            entry.finish(TaskStatus::Succeeded, counters.next_finished(), now);
        }
        Outcome::Retry { attempt, due } => {
            entry.append(AttemptOutcome::RetryableFailure, detached(attempt), now);
            entry.wait_until(due.resolve(now));
        }
        Outcome::Die { attempt } => {
            entry.append(AttemptOutcome::PermanentFailure, detached(attempt), now);
            entry.finish(TaskStatus::Dead, counters.next_finished(), now);
        }
        Outcome::GiveBack { due } => entry.wait_until(due.resolve(now).max(now)),
    }
}

fn detached(mut attempt: AttemptReport) -> AttemptReport {
    detach(&mut attempt.extra);
    attempt
}
