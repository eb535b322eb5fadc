//! Claims: how they are taken, kept and seen, and how a cancellation ends them.

use crate::{
    admission::detach,
    entry::{Past, Standing},
    history::{Part, lease_expired},
    state::State,
};
use rdq_spi::{
    AttemptOutcome, AttemptReport, Cancelled, Claim, ClaimParams, ClaimQueue, ClaimRef, ClaimToken,
    Claimed, ExtendParams, Extended, HeldClaim, QueueName, Result, StaleDetail, TaskId, TaskStatus,
    Timestamp,
};
use std::time::Duration;

impl State {
    /// Takes what is due, one task of each queue in turn.
    pub(crate) fn claim(&mut self, params: &ClaimParams, now: Timestamp) -> Claimed {
        let mut claims = Vec::new();
        let mut bytes = 0;
        let mut turns = self.in_turn(&params.queues);
        'rounds: while !turns.is_empty() {
            let mut empty = Vec::new();
            for (turn, from) in turns.iter().enumerate() {
                if claims.len() >= params.limit as usize {
                    break 'rounds;
                }
                let Some(admitted) = self.next_ready(&from.queue, now) else {
                    empty.push(turn);
                    continue;
                };
                let budget = params.bytes_max.saturating_sub(bytes);
                let budget = if claims.is_empty() { usize::MAX } else { budget };
                let Some((claim, weight)) = self.claim_one(admitted, from, params, budget, now)
                else {
                    break 'rounds;
                };
                bytes += weight;
                claims.push(claim);
            }
            for turn in empty.into_iter().rev() {
                turns.remove(turn);
            }
        }
        let next_due_at = self.next_due_at(params.queues.iter().map(|from| &from.queue), now);
        Claimed { claims, next_due_in: next_due_at.map(|at| at.since(now)) }
    }

    /// The queues, the one first that was served least recently: claims that take one task each
    /// are fair too.
    fn in_turn<'a>(&self, queues: &'a [ClaimQueue]) -> Vec<&'a ClaimQueue> {
        let mut turns: Vec<_> = queues.iter().collect();
        if turns.len() > 1 {
            turns.sort_by_key(|from| self.queues.get(&from.queue).map(|queue| queue.served));
        }
        turns
    }

    fn next_ready(&mut self, name: &QueueName, now: Timestamp) -> Option<u64> {
        let next = self.queue(name, now)?.next_ready()?;
        let served = self.counters.next_served();
        if let Some(queue) = self.queues.get_mut(name) {
            queue.served = served;
        }
        Some(next)
    }

    /// Claims a task that is due, unless the answer outgrows `budget`: then nothing changes. The
    /// lapsed claim of another holder becomes a record of the history in the same step.
    fn claim_one(
        &mut self,
        admitted: u64,
        from: &ClaimQueue,
        params: &ClaimParams,
        budget: usize,
        now: Timestamp,
    ) -> Option<(Claim, usize)> {
        if budget < usize::MAX && self.entries.get(&admitted)?.answer(Part::Claim).1 > budget {
            return None;
        }
        let run = self.run;
        self.change(admitted, now, |entry, counters| {
            if entry.task.status == TaskStatus::InFlight {
                entry.append(AttemptOutcome::LeaseExpired, lease_expired(), now);
                let task = &mut entry.task;
                task.lease_expired_count = task.lease_expired_count.saturating_add(1);
            }
            let lease = params.lease.or(entry.task.overrides.lease).unwrap_or(from.lease);
            let lease = lease.min(from.lease_max);
            entry.generation = counters.next_generation();
            entry.past = None;
            let task = &mut entry.task;
            task.status = TaskStatus::InFlight;
            task.next_attempt_at = None;
            task.claimed_at = Some(now);
            task.claimed_by = Some(params.worker_id.clone());
            task.lease_expires_at = Some(now.after(lease));
            let (task, bytes) = entry.answer(Part::Claim);
            let generation = entry.generation;
            (Claim { task, token: run.mint(generation), generation, lease }, bytes)
        })
    }

    pub(crate) fn extend(&mut self, params: ExtendParams, now: Timestamp) -> Result<Extended> {
        let generation = self.run.read(&params.claim.token);
        let entry = self.find(&params.claim.task_id)?;
        match entry.standing(generation) {
            Standing::Holds if params.strict && entry.lapsed(now) => return Err(entry.stale(None)),
            Standing::Holds => {}
            Standing::Over(past) => return Err(entry.stale(past.detail())),
            Standing::Superseded => return Err(entry.stale(None)),
        }
        let mut ends_at = now.after(params.lease);
        if let (Some(held_max), Some(claimed_at)) = (params.held_max, entry.task.claimed_at) {
            ends_at = ends_at.min(claimed_at.after(held_max));
        }
        let admitted = entry.admitted;
        self.change(admitted, now, |entry, _| {
            entry.task.lease_expires_at = Some(ends_at);
            if let Some(mut progress) = params.progress {
                detach(&mut progress);
                entry.task.progress = progress;
            }
        });
        Ok(Extended { lease_expires_at: ends_at, remaining: ends_at.since(now) })
    }

    /// How much of the lease is left; `None` if the claim is not live.
    pub(crate) fn live(&self, claim: &ClaimRef, now: Timestamp) -> Option<Duration> {
        let entry = self.find(&claim.task_id).ok()?;
        match entry.standing(self.run.read(&claim.token)) {
            Standing::Holds if !entry.lapsed(now) => {
                entry.task.lease_expires_at.map(|end| end.since(now))
            }
            _ => None,
        }
    }

    /// The token of the newest claim, if it is this one.
    pub(crate) fn claim_of(&self, held: &HeldClaim) -> Option<ClaimToken> {
        let entry = self.find(&held.task_id).ok()?;
        let is_newest = entry.generation == held.generation;
        let is_holder = entry.task.claimed_by.as_ref().is_none_or(|by| *by == held.worker_id);
        (is_newest && is_holder).then(|| self.run.mint(held.generation))
    }

    pub(crate) fn cancel(&mut self, task: &TaskId, now: Timestamp) -> Result<Cancelled> {
        let entry = self.find(task)?;
        let status = entry.task.status;
        if status.is_terminal() {
            return Ok(Cancelled { status, changed: false });
        }
        let admitted = entry.admitted;
        self.change(admitted, now, |entry, counters| {
            if status == TaskStatus::InFlight {
                entry.append(AttemptOutcome::Cancelled, AttemptReport::default(), now);
                entry.past = Some(Past::Ended(StaleDetail::Cancelled));
            }
            entry.finish(TaskStatus::Cancelled, counters.next_finished(), now);
        });
        Ok(Cancelled { status: TaskStatus::Cancelled, changed: true })
    }
}
