//! Pages of tasks.

use crate::{
    entry::Entry,
    history::Part,
    position::{self, List, mint, scan},
    state::State,
};
use rdq_spi::{DlqFilter, DlqListParams, ListParams, Page, QueueName, Result, Task, TaskStatus};

impl State {
    pub(crate) fn list(&self, params: &ListParams) -> Result<Page> {
        let ListParams { queue, status, position, limit, bytes_max, include_attempts } = params;
        let below = position::read(self.run, List::Tasks, queue, position.as_ref())?;
        let Some(order) = self.queues.get(queue) else { return Ok(Page::default()) };
        let part = if *include_attempts { Part::Whole } else { Part::Nothing };
        let entries = order.admitted.range(..below).rev().map(|admitted| (*admitted, *admitted));
        let (tasks, rest) = scan(entries, *limit, *bytes_max, |admitted| {
            let entry = self.entries.get(&admitted)?;
            status.is_none_or(|status| status == entry.task.status).then(|| entry.answer(part))
        });
        Ok(self.page(List::Tasks, queue, tasks, rest))
    }

    pub(crate) fn dlq_list(&self, params: &DlqListParams) -> Result<Page> {
        let DlqListParams { queue, filter, position, limit, bytes_max, include_attempts } = params;
        let below = position::read(self.run, List::Dead, queue, position.as_ref())?;
        let Some(order) = self.queues.get(queue) else { return Ok(Page::default()) };
        let part = if *include_attempts { Part::Whole } else { Part::Final };
        let entries = order.dead.range(..below).rev().map(|(died, admitted)| (*died, *admitted));
        let (tasks, rest) = scan(entries, *limit, *bytes_max, |admitted| {
            let entry = self.entries.get(&admitted)?;
            lets_through(filter, entry).then(|| entry.answer(part))
        });
        Ok(self.page(List::Dead, queue, tasks, rest))
    }

    fn page(&self, list: List, queue: &QueueName, tasks: Vec<Task>, rest: Option<u64>) -> Page {
        Page { tasks, next: rest.map(|below| mint(self.run, list, queue, below)) }
    }
}

/// Whether a task is a dead letter that the filter lets through.
pub(crate) fn lets_through(filter: &DlqFilter, entry: &Entry) -> bool {
    let task = &entry.task;
    let final_error = task.attempts.last().and_then(|attempt| attempt.error.as_ref());
    let error_type = final_error.map(|error| error.error_type.as_str());
    let died_at = task.finished_at;
    task.status == TaskStatus::Dead
        && filter.error_type.as_deref().is_none_or(|wanted| error_type == Some(wanted))
        && filter.handler_ref.as_deref().is_none_or(|wanted| task.handler_ref.as_str() == wanted)
        && filter.dead_from.is_none_or(|from| died_at.is_some_and(|at| at >= from))
        && filter.dead_to.is_none_or(|to| died_at.is_some_and(|at| at < to))
}
