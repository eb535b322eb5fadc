//! In which order the calls of one transaction run. All of them wait at once, so that any order is
//! right: first what is neither admission nor claim, which gives claims the time to come; then
//! admissions, which may hand their tasks to claims; then claims; and last those claims that wait
//! from earlier transactions, if there is something for them.

use crate::{
    errors::Sql,
    job::{Job, Role},
    transaction::Tx,
};
use std::collections::VecDeque;

/// Numbers of calls that did not run yet.
#[derive(Default)]
pub(crate) struct Agenda {
    /// How many calls there are.
    known: usize,
    others: VecDeque<usize>,
    admissions: VecDeque<usize>,
    claims: VecDeque<usize>,
    parked: Vec<usize>,
    /// Whether those who wait may be handed tasks. There may be many of them, and few transactions
    /// that admit anything.
    parked_are_expected: bool,
}

impl Agenda {
    /// Takes in the calls that are new in the batch.
    pub(crate) fn add(&mut self, tx: &mut Tx<'_, '_>, batch: &[Box<dyn Job>]) {
        for (call, job) in batch.iter().enumerate().skip(self.known) {
            match job.role() {
                Role::Other => self.others.push_back(call),
                Role::Admits => self.admissions.push_back(call),
                Role::Claims(_) | Role::WaitingClaims(..) if job.is_parked() => {
                    self.parked.push(call);
                }
                Role::Claims(claims) | Role::WaitingClaims(claims, _) => {
                    tx.handoffs.expect(call, claims);
                    self.claims.push_back(call);
                }
            }
        }
        self.known = batch.len();
    }

    /// The call that runs next.
    pub(crate) fn next(
        &mut self,
        tx: &mut Tx<'_, '_>,
        batch: &[Box<dyn Job>],
    ) -> Sql<Option<usize>> {
        if let Some(call) = self.others.pop_front() {
            return Ok(Some(call));
        }
        if let Some(call) = self.admissions.pop_front() {
            if !std::mem::replace(&mut self.parked_are_expected, true) {
                for &call in &self.parked {
                    if let Some(claims) = batch[call].role().claims() {
                        tx.handoffs.expect(call, claims);
                    }
                }
            }
            return Ok(Some(call));
        }
        if let Some(call) = self.claims.pop_front() {
            return Ok(Some(call));
        }
        self.next_parked(tx, batch)
    }

    /// The first of those who wait for whom something is there.
    fn next_parked(&mut self, tx: &mut Tx<'_, '_>, batch: &[Box<dyn Job>]) -> Sql<Option<usize>> {
        if self.parked.is_empty() {
            return Ok(None);
        }
        let due = tx.made_due()?;
        let is_served = |&call: &usize| {
            let claims = batch[call].role().claims().into_iter().flat_map(|claims| claims.iter());
            let mut queues = claims.flat_map(|params| &params.queues);
            !batch[call].is_parked()
                || tx.handoffs.has_served(call)
                || (!due.is_empty() && queues.any(|from| due.contains(&from.queue)))
        };
        Ok(self.parked.iter().position(is_served).map(|index| self.parked.remove(index)))
    }

    /// Nothing else runs in this transaction.
    pub(crate) fn pass_the_rest(self, batch: &mut [Box<dyn Job>]) {
        for call in self.parked {
            batch[call].pass();
        }
    }
}
