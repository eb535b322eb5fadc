//! Redrives and purges: bounded steps, each with the running count, audited at their end.

use crate::{
    Engine, EngineError,
    clock::{self, Instant},
    core::Core,
    limits::{ANSWER_BYTES_MAX, SELECTION_IDS_MAX, STEP_TASKS_MAX, once_each},
    listing::matches,
};
use futures::{Stream, stream};
use rdq_spi::{
    DlqFilter, DlqListParams, Position, PurgeParams, QueueName, RedriveParams, Selection, Step,
    TaskId,
};
use std::{pin::Pin, sync::Arc, time::Duration};

/// Dead letters to make pending again.
#[derive(Debug, Clone)]
pub struct RedriveRequest {
    /// The queue.
    pub queue: QueueName,
    /// Which; 1 to 1,000 ids, or a filter that constrains something, or all.
    pub selection: Selection,
    /// Count, and change nothing.
    pub dry_run: bool,
    /// Spaces the due times, against a thundering herd; all due now if unset.
    pub pace: Option<Pace>,
    /// Who asks, for the audit.
    pub subject: String,
}

/// How redriven tasks are spaced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// Evenly over this duration; above zero.
    SpreadOver(Duration),
    /// So many a second; finite and above zero.
    PerSecond(f64),
}

/// Dead letters to remove for good.
#[derive(Debug, Clone)]
pub struct PurgeRequest {
    /// The queue.
    pub queue: QueueName,
    /// Which; 1 to 1,000 ids, or a filter that constrains something, or all.
    pub selection: Selection,
    /// Count, and change nothing.
    pub dry_run: bool,
    /// Who asks, for the audit.
    pub subject: String,
}

/// The running count after each step; at least one item, and it ends when done. Dropping it stops
/// after the step under way.
pub type Progress = Pin<Box<dyn Stream<Item = Result<u64, EngineError>> + Send>>;

impl Engine {
    /// Makes dead letters pending again, with no attempts spent and their history kept.
    pub fn redrive(&self, request: RedriveRequest) -> Result<Progress, EngineError> {
        let RedriveRequest { queue, selection, dry_run, pace, subject } = request;
        let spacing = match pace {
            None => Spacing::Known(Duration::ZERO),
            Some(Pace::SpreadOver(Duration::ZERO)) => {
                return Err(EngineError::invalid("spread_over", "must be above zero"));
            }
            Some(Pace::SpreadOver(over)) => Spacing::Over(over),
            Some(Pace::PerSecond(rate)) if rate.is_finite() && rate > 0.0 => {
                Spacing::Known(Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX))
            }
            Some(Pace::PerSecond(_)) => {
                return Err(EngineError::invalid(
                    "rate_per_second",
                    "must be finite and above zero",
                ));
            }
        };
        self.steps(Action::Redrive(spacing), queue, selection, dry_run, subject)
    }

    /// Removes dead letters for good.
    pub fn purge(&self, request: PurgeRequest) -> Result<Progress, EngineError> {
        let PurgeRequest { queue, selection, dry_run, subject } = request;
        self.steps(Action::Purge, queue, selection, dry_run, subject)
    }

    fn steps(
        &self,
        action: Action,
        queue: QueueName,
        selection: Selection,
        dry_run: bool,
        subject: String,
    ) -> Result<Progress, EngineError> {
        if self.core.closing.is_cancelled() {
            return Err(EngineError::Closed);
        }
        let selection = check(selection)?;
        let core = Arc::clone(&self.core);
        let plan = Plan { queue, selection, dry_run };
        let run = Run {
            core,
            action,
            plan,
            position: None,
            count: 0,
            started: clock::now(),
            done: false,
            subject,
        };
        Ok(Box::pin(stream::unfold(Some(run), |run| async move {
            let mut run = run?;
            match run.step().await {
                Ok(()) => {
                    let count = run.count;
                    Some((Ok(count), (!run.done).then_some(run)))
                }
                Err(error) => Some((Err(error), None)),
            }
        })))
    }
}

fn check(selection: Selection) -> Result<Selection, EngineError> {
    match selection {
        Selection::Ids(ids) => {
            let ids = once_each(ids);
            if ids.is_empty() || ids.len() > SELECTION_IDS_MAX {
                let message =
                    format!("must name 1 to {SELECTION_IDS_MAX} tasks, not {}", ids.len());
                return Err(EngineError::invalid("selector.ids", message));
            }
            Ok(Selection::Ids(ids))
        }
        Selection::Filter(filter) if filter.is_empty() => {
            Err(EngineError::invalid("selector.filter", "must constrain something"))
        }
        selection => Ok(selection),
    }
}

#[derive(Clone, Copy)]
enum Action {
    Redrive(Spacing),
    Purge,
}

#[derive(Clone, Copy)]
enum Spacing {
    Known(Duration),
    /// Known once the selection is counted.
    Over(Duration),
}

#[derive(Clone)]
struct Plan {
    queue: QueueName,
    selection: Selection,
    dry_run: bool,
}

/// A redrive or purge under way. Its audit record is written when it ends, however it does.
struct Run {
    core: Arc<Core>,
    action: Action,
    plan: Plan,
    position: Option<Position>,
    count: u64,
    started: Instant,
    done: bool,
    subject: String,
}

impl Run {
    async fn step(&mut self) -> Result<(), EngineError> {
        if let Action::Redrive(Spacing::Over(over)) = self.action {
            let total = if self.plan.dry_run { 1 } else { self.count_all().await? };
            self.action = Action::Redrive(Spacing::Known(divided(over, total.max(1))));
            self.started = clock::now();
        }
        let position = self.position.take();
        let plan = self.plan.clone();
        let step = self.core.dead_letter_step(self.action, plan, position, self.schedule()).await?;
        self.count += step.count;
        self.done = step.next.is_none();
        self.position = step.next;
        self.core.hint_in_process(&self.plan.queue, Duration::ZERO);
        Ok(())
    }

    /// When the first of the next step is due, and how far apart the others.
    fn schedule(&self) -> (Duration, Duration) {
        let Action::Redrive(Spacing::Known(spacing)) = self.action else {
            return Default::default();
        };
        let delay = times(spacing, self.count).saturating_sub(clock::now() - self.started);
        (delay, spacing)
    }

    async fn count_all(&self) -> Result<u64, EngineError> {
        let plan = Plan { dry_run: true, ..self.plan.clone() };
        let (mut total, mut position) = (0, None);
        loop {
            let nothing = Default::default();
            let step =
                self.core.dead_letter_step(self.action, plan.clone(), position, nothing).await?;
            total += step.count;
            position = step.next;
            if position.is_none() {
                return Ok(total);
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let action = if matches!(self.action, Action::Purge) { "purge" } else { "redrive" };
        let selection = match &self.plan.selection {
            Selection::Ids(ids) => format!("{} ids", ids.len()),
            Selection::Filter(filter) => format!("{filter:?}"),
            Selection::All => "all".to_owned(),
        };
        tracing::info!(
            target: "rdq::audit",
            subject = self.subject,
            action,
            queue = %self.plan.queue,
            selection,
            dry_run = self.plan.dry_run,
            count = self.count,
            done = self.done,
        );
    }
}

impl Core {
    async fn dead_letter_step(
        &self,
        action: Action,
        plan: Plan,
        position: Option<Position>,
        schedule: (Duration, Duration),
    ) -> Result<Step, EngineError> {
        match plan.selection {
            Selection::Filter(filter) if !self.capabilities.filter_pushdown => {
                let (ids, next) = self.matching_ids(plan.queue.clone(), &filter, position).await?;
                let count = ids.len() as u64;
                if ids.is_empty() || plan.dry_run {
                    return Ok(Step { count, next });
                }
                let plan = Plan { selection: Selection::Ids(ids), ..plan };
                let step = self.plain_step(action, plan, None, schedule).await?;
                Ok(Step { next, ..step })
            }
            _ => self.plain_step(action, plan, position, schedule).await,
        }
    }

    async fn plain_step(
        &self,
        action: Action,
        plan: Plan,
        position: Option<Position>,
        (delay, spacing): (Duration, Duration),
    ) -> Result<Step, EngineError> {
        let Plan { queue, selection, dry_run } = plan;
        let limit = STEP_TASKS_MAX;
        match action {
            Action::Redrive(_) => {
                let params =
                    RedriveParams { queue, selection, dry_run, position, limit, delay, spacing };
                self.call("redrive", |storage| async move { storage.redrive(params).await }).await
            }
            Action::Purge => {
                let params = PurgeParams { queue, selection, dry_run, position, limit };
                self.call("purge", |storage| async move { storage.purge(params).await }).await
            }
        }
    }

    /// The dead letters of one page that match, where the storage does not evaluate filters.
    async fn matching_ids(
        &self,
        queue: QueueName,
        filter: &DlqFilter,
        position: Option<Position>,
    ) -> Result<(Vec<TaskId>, Option<Position>), EngineError> {
        let params = DlqListParams {
            queue,
            filter: DlqFilter::default(),
            position,
            limit: STEP_TASKS_MAX,
            bytes_max: ANSWER_BYTES_MAX,
            include_attempts: false,
        };
        let page =
            self.call("dlq_list", |storage| async move { storage.dlq_list(params).await }).await?;
        let matching = page.tasks.into_iter().filter(|task| matches(filter, task));
        Ok((matching.map(|task| task.id).collect(), page.next))
    }
}

fn times(duration: Duration, count: u64) -> Duration {
    let nanos = duration.as_nanos().saturating_mul(u128::from(count));
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}

fn divided(duration: Duration, parts: u64) -> Duration {
    let nanos = duration.as_nanos() / u128::from(parts);
    u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
}
