//! Maintenance: what outlived its time dies, what outlived its retention goes. One server at a time
//! does it, by lock, where the storage has locks; elsewhere every one. Each step is bounded and
//! idempotent, so that many at once only share the work.

use crate::{
    Engine, EngineError, clock,
    configuration::Effective,
    core::Core,
    keeper,
    leadership::{Candidate, Lead},
    limits::STEP_TASKS_MAX,
};
use rdq_spi::{Age, DeadRetention, QueueName, SweepParams, Swept, Timestamp};
use std::{sync::Arc, time::Duration};

const LOCK: &str = "__rdq_maintenance";
/// Steps on one queue before the others have their turn.
const STEPS_MAX: u32 = 100;
const NAMES_PAGE: u32 = 1_000;
/// Claims lapsed for so long are forgotten: their tasks were reclaimed, or nobody waits for them.
const LAPSED_KEPT: Duration = Duration::from_secs(60);
/// A breath between steps, so that callers get through.
const STEP_PAUSE: Duration = Duration::from_millis(10);
/// When a queue had more than its steps, the next round does not wait for its time.
const MORE_PAUSE: Duration = Duration::from_secs(1);

impl Engine {
    /// Removes succeeded tasks that finished before an instant, at most 100,000; says how many, and
    /// whether more are left.
    pub async fn purge_succeeded(
        &self,
        queue: QueueName,
        older_than: Timestamp,
    ) -> Result<(u64, bool), EngineError> {
        let mut removed = 0;
        for _ in 0..STEPS_MAX {
            let params = SweepParams {
                queue: queue.clone(),
                expire: false,
                succeeded_older_than: Some(Age::Before(older_than)),
                cancelled_older_than: None,
                dead: None,
                limit: STEP_TASKS_MAX,
            };
            let swept = self
                .core
                .call("sweep", |storage| async move { storage.sweep(params).await })
                .await?;
            removed += swept.removed;
            if !swept.more {
                return Ok((removed, false));
            }
        }
        Ok((removed, true))
    }

    /// One step of maintenance on a queue, at most 1,000 tasks.
    pub async fn sweep_expired(&self, queue: QueueName) -> Result<Swept, EngineError> {
        self.core.sweep_step(queue).await
    }
}

impl Core {
    async fn sweep_step(self: &Arc<Self>, queue: QueueName) -> Result<Swept, EngineError> {
        let params = sweep_of(queue.clone(), self.queues.snapshot().effective(&queue));
        let swept =
            self.call("sweep", |storage| async move { storage.sweep(params).await }).await?;
        if swept.expired > 0 {
            keeper::tell_expired(self).await;
        }
        Ok(swept)
    }

    /// Sweeps every queue, as far as the steps allow; says whether more is left.
    async fn sweep_all(self: &Arc<Self>) -> Result<bool, EngineError> {
        let (mut after, mut more) = (None, false);
        loop {
            let names = self
                .call("queue_names", |storage| async move {
                    storage.queue_names(after, NAMES_PAGE).await
                })
                .await?;
            let Some(last) = names.last().cloned() else { return Ok(more) };
            for queue in names {
                more |= self.sweep_queue(queue).await?;
            }
            if self.closing.is_cancelled() {
                return Ok(false);
            }
            after = Some(last);
        }
    }

    async fn sweep_queue(self: &Arc<Self>, queue: QueueName) -> Result<bool, EngineError> {
        for _ in 0..STEPS_MAX {
            if self.closing.is_cancelled() || !self.sweep_step(queue.clone()).await?.more {
                return Ok(false);
            }
            clock::sleep(STEP_PAUSE).await;
        }
        Ok(true)
    }
}

fn sweep_of(queue: QueueName, effective: &Effective) -> SweepParams {
    SweepParams {
        queue,
        expire: true,
        succeeded_older_than: Some(Age::LongerThan(effective.retention_succeeded)),
        cancelled_older_than: Some(Age::LongerThan(effective.retention_cancelled)),
        dead: Some(DeadRetention { queue: effective.retention_dead }),
        limit: STEP_TASKS_MAX,
    }
}

/// Runs until the engine closes. A storage that fails is left alone until the next time.
pub(crate) async fn maintain(core: Arc<Core>) {
    let interval = core.options.maintenance_interval;
    // Held from one time to the next. A sweep that takes longer loses it, which harms nobody.
    let candidate = match Candidate::new(Arc::clone(&core), LOCK, interval.saturating_mul(3) / 2) {
        Ok(candidate) => candidate,
        Err(error) => {
            tracing::error!(%error, "this server does no maintenance");
            return;
        }
    };
    let (mut lead, mut more) = (None, false);
    loop {
        let interval = if more { interval.min(MORE_PAUSE) } else { interval };
        tokio::select! {
            biased;
            () = core.closing.cancelled() => break,
            () = clock::sleep(clock::jittered(interval, 0.2)) => {}
        }
        more = sweep_by_turns(&core, &candidate, &mut lead).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "maintenance failed; trying again at its next time");
            false
        });
        if let Some(long_ago) = clock::now().checked_sub(LAPSED_KEPT) {
            core.feeds.all().iter().for_each(|feed| feed.forget_lapsed(long_ago));
        }
    }
    if let Some(lead) = lead {
        lead.release().await;
    }
}

/// Sweeps, unless another server does; says whether more is left.
async fn sweep_by_turns<'a>(
    core: &Arc<Core>,
    candidate: &'a Candidate,
    lead: &mut Option<Lead<'a>>,
) -> Result<bool, EngineError> {
    if core.storage.locks().is_some() {
        *lead = candidate.try_lead().await?;
        let leads = match lead {
            Some(lead) => lead.renew().await?,
            None => false,
        };
        if !leads {
            // Its streams are this server's own, whoever swept.
            keeper::tell_expired(core).await;
            return Ok(false);
        }
    }
    core.sweep_all().await
}
