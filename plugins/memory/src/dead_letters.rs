//! Steps over dead letters: redrives and purges, newest first. A step remembers how far down the
//! order of deaths it came, so what dies while it runs is above it and not of its selection.

use crate::{
    lists::lets_through,
    position::{self, List, mint, scan},
    state::State,
};
use rdq_spi::{
    DlqFilter, Position, PurgeParams, QueueName, RedriveParams, Result, Selection, Step, TaskId,
    Timestamp,
};
use std::collections::BTreeMap;

impl State {
    pub(crate) fn redrive(&mut self, params: &RedriveParams, now: Timestamp) -> Result<Step> {
        let RedriveParams { queue, selection, dry_run, position, limit, delay, spacing } = params;
        let (selected, next) = self.select(queue, selection, position.as_ref(), *limit)?;
        if !dry_run {
            let mut due_in = *delay;
            for admitted in &selected {
                self.change(*admitted, now, |entry, _| {
                    entry.past = None;
                    entry.task.attempt_count = 0;
                    entry.task.redrive_count = entry.task.redrive_count.saturating_add(1);
                    entry.task.finished_at = None;
                    entry.wait_until(now.after(due_in));
                });
                due_in = due_in.saturating_add(*spacing);
            }
        }
        Ok(Step { count: selected.len() as u64, next })
    }

    pub(crate) fn purge(&mut self, params: &PurgeParams) -> Result<Step> {
        let PurgeParams { queue, selection, dry_run, position, limit } = params;
        let (selected, next) = self.select(queue, selection, position.as_ref(), *limit)?;
        if !dry_run {
            for admitted in &selected {
                self.remove(*admitted);
            }
        }
        Ok(Step { count: selected.len() as u64, next })
    }

    fn select(
        &self,
        queue: &QueueName,
        selection: &Selection,
        position: Option<&Position>,
        limit: u32,
    ) -> Result<(Vec<u64>, Option<Position>)> {
        let below = position::read(self.run, List::Dead, queue, position)?;
        let (selected, rest) = match selection {
            Selection::Ids(ids) => {
                let dead = self.dead_among(ids, queue, below);
                scan(dead.into_iter().rev(), limit, 0, |admitted| Some((admitted, 0)))
            }
            Selection::Filter(filter) => self.scan_dead(queue, filter, below, limit),
            Selection::All => self.scan_dead(queue, &DlqFilter::default(), below, limit),
        };
        let next = rest.map(|below| mint(self.run, List::Dead, queue, below));
        Ok((selected, next))
    }

    fn scan_dead(
        &self,
        queue: &QueueName,
        filter: &DlqFilter,
        below: u64,
        limit: u32,
    ) -> (Vec<u64>, Option<u64>) {
        let Some(order) = self.queues.get(queue) else { return (Vec::new(), None) };
        let entries = order.dead.range(..below).rev().map(|(died, admitted)| (*died, *admitted));
        scan(entries, limit, 0, |admitted| {
            lets_through(filter, self.entries.get(&admitted)?).then_some((admitted, 0))
        })
    }

    /// Which of these are dead letters of the queue, by their death.
    fn dead_among(&self, ids: &[TaskId], queue: &QueueName, below: u64) -> BTreeMap<u64, u64> {
        let everything = DlqFilter::default();
        let entries = ids.iter().filter_map(|id| self.find(id).ok());
        let dead = entries.filter(|entry| {
            entry.task.queue == *queue && lets_through(&everything, entry) && entry.finished < below
        });
        dead.map(|entry| (entry.finished, entry.admitted)).collect()
    }
}
