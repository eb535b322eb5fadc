//! `impl Storage`: one short method per operation. Each takes the lock once, for the whole batch,
//! reads the clock under it, and tells the waiters afterwards.

use crate::{admission::detach_task, clock::Clock, hints::hints, state::State};
use async_trait::async_trait;
use futures::StreamExt as _;
use rdq_spi::{
    Admission, Awaited, Cancelled, Capabilities, ClaimParams, ClaimRef, ClaimToken, Claimed,
    DlqListParams, DueHints, Durability, ExtendParams, Extended, HeldClaim, HintHub, Ledger,
    ListParams, Locks, NewTask, Page, PurgeParams, QueueConfig, QueueName, QueueRecord, QueueStats,
    Records, RedriveParams, Resolution, Resolved, Result, Signals, Step, Storage, StorageError,
    StreamTurns, Streams, SweepParams, Swept, Task, TaskId, Timestamp, Transactions, WakeHub,
    Wakes,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Tasks in the memory of this process. A clone is another handle on the same data; closing a
/// handle leaves the others open.
#[derive(Debug)]
pub struct MemoryStorage {
    pub(crate) shared: Arc<Shared>,
    closed: watch::Sender<bool>,
}

/// What the handles on one store share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) hub: HintHub,
    pub(crate) wakes: WakeHub,
    pub(crate) turns: StreamTurns,
    pub(crate) clock: Clock,
}

impl Shared {
    /// Does one atomic step at one instant, then tells those who wait.
    pub(crate) fn call<T>(&self, step: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let mut state = self.lock();
        // Under the lock, so that instants are in the order of the steps.
        let now = self.clock.now();
        let answer = step(&mut state, now);
        let news = state.take_news(now);
        let wakes = std::mem::take(&mut state.wakes);
        drop(state);
        for topic in &wakes {
            self.wakes.wake(topic);
        }
        for (queue, at) in news {
            self.hub.hint(&queue, at.since(now));
        }
        answer
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryStorage {
    /// An empty store. Its clock starts here, so within tokio's runtime it follows paused time.
    pub fn new() -> Self {
        Self::handle(Arc::new(Shared {
            state: Mutex::new(State::new()),
            hub: HintHub::default(),
            wakes: WakeHub::default(),
            turns: StreamTurns::default(),
            clock: Clock::start(),
        }))
    }

    fn handle(shared: Arc<Shared>) -> Self {
        Self { shared, closed: watch::Sender::new(false) }
    }

    pub(crate) fn call<T>(&self, step: impl FnOnce(&mut State, Timestamp) -> T) -> Result<T> {
        self.check_open()?;
        Ok(self.shared.call(step))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if *self.closed.borrow() { Err(StorageError::Closed) } else { Ok(()) }
    }

    /// These wakes, until this handle is closed.
    pub(crate) fn until_closed(&self, wakes: Wakes) -> Wakes {
        let mut closed = self.closed.subscribe();
        Box::pin(wakes.take_until(async move { _ = closed.wait_for(|closed| *closed).await }))
    }
}

impl Default for MemoryStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryStorage {
    fn clone(&self) -> Self {
        Self::handle(self.shared.clone())
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durability: Durability::None,
            notify: true,
            waiting_claims: true,
            filter_pushdown: true,
            batch_enqueue: true,
        }
    }

    async fn ping(&self) -> Result<()> {
        self.check_open()
    }

    async fn close(&self) {
        self.closed.send_replace(true);
    }

    async fn enqueue(&self, mut tasks: Vec<NewTask>) -> Result<Vec<Result<Admission>>> {
        // Copied before the lock is taken, which is held for the shorter.
        tasks.iter_mut().for_each(detach_task);
        self.call(|state, now| tasks.into_iter().map(|task| state.enqueue(task, now)).collect())
    }

    async fn claim_due(&self, claims: Vec<ClaimParams>) -> Result<Vec<Result<Claimed>>> {
        self.call(|state, now| claims.iter().map(|params| Ok(state.claim(params, now))).collect())
    }

    async fn claim_when_due(
        &self,
        claims: Vec<ClaimParams>,
        enough: CancellationToken,
    ) -> Result<Awaited> {
        let called = self.shared.clock.now();
        let claim = || {
            self.call(|state, now| Awaited {
                claims: claims.iter().map(|params| Ok(state.claim(params, now))).collect(),
                // Instants are whole milliseconds.
                waited: now.since(called).saturating_sub(Duration::from_millis(1)),
            })
        };
        let answer = claim()?;
        if enough.is_cancelled() || !answer.is_empty() {
            return Ok(answer);
        }
        let mut queues: Vec<_> = claims
            .iter()
            .flat_map(|params| &params.queues)
            .map(|from| from.queue.clone())
            .collect();
        queues.sort_unstable();
        queues.dedup();
        let mut hints = hints(Arc::clone(&self.shared), queues, self.closed.subscribe());
        loop {
            let is_last = enough.is_cancelled();
            let answer = claim()?;
            if is_last || !answer.is_empty() {
                return Ok(answer);
            }
            tokio::select! {
                biased;
                () = enough.cancelled() => {}
                _ = hints.next() => {}
            }
        }
    }

    async fn extend_leases(&self, leases: Vec<ExtendParams>) -> Result<Vec<Result<Extended>>> {
        self.call(|state, now| leases.into_iter().map(|lease| state.extend(lease, now)).collect())
    }

    async fn resolve(&self, resolutions: Vec<Resolution>) -> Result<Vec<Result<Resolved>>> {
        self.call(|state, now| {
            let resolved = resolutions.into_iter().map(|resolution| state.resolve(resolution, now));
            resolved.collect()
        })
    }

    async fn live_claims(&self, claims: Vec<ClaimRef>) -> Result<Vec<Option<Duration>>> {
        self.call(|state, now| claims.iter().map(|claim| state.live(claim, now)).collect())
    }

    async fn cancel(&self, tasks: Vec<TaskId>) -> Result<Vec<Result<Cancelled>>> {
        self.call(|state, now| tasks.iter().map(|task| state.cancel(task, now)).collect())
    }

    async fn get(&self, task: TaskId) -> Result<Task> {
        self.call(|state, _| state.find(&task).map(|entry| entry.task.clone()))?
    }

    async fn list(&self, params: ListParams) -> Result<Page> {
        self.call(|state, _| state.list(&params))?
    }

    async fn dlq_list(&self, params: DlqListParams) -> Result<Page> {
        self.call(|state, _| state.dlq_list(&params))?
    }

    async fn redrive(&self, params: RedriveParams) -> Result<Step> {
        self.call(|state, now| state.redrive(&params, now))?
    }

    async fn purge(&self, params: PurgeParams) -> Result<Step> {
        self.call(|state, _| state.purge(&params))?
    }

    async fn stats(&self, queue: QueueName) -> Result<QueueStats> {
        self.call(|state, now| state.stats(&queue, now))
    }

    async fn sweep(&self, params: SweepParams) -> Result<Swept> {
        self.call(|state, now| state.sweep(&params, now))
    }

    async fn queue_names(&self, after: Option<QueueName>, limit: u32) -> Result<Vec<QueueName>> {
        self.call(|state, _| state.queue_names(after.as_ref(), limit))
    }

    async fn put_queue(&self, queue: QueueName, config: QueueConfig) -> Result<QueueRecord> {
        self.call(|state, now| state.put_queue(queue, config, now))
    }

    async fn queue_records(&self) -> Result<Vec<QueueRecord>> {
        self.call(|state, _| state.queue_records())
    }

    async fn delete_queue(&self, queue: QueueName) -> Result<bool> {
        self.call(|state, _| state.delete_queue(queue))?
    }

    async fn shared_secret(&self, name: &str, candidate: Vec<u8>) -> Result<Vec<u8>> {
        self.call(|state, _| state.shared_secret(name, candidate))
    }

    async fn now(&self) -> Result<Timestamp> {
        self.call(|_, now| now)
    }

    async fn claims_of(&self, claims: Vec<HeldClaim>) -> Result<Vec<Option<ClaimToken>>> {
        self.call(|state, _| claims.iter().map(|claim| state.claim_of(claim)).collect())
    }

    fn signals(&self) -> Option<&dyn Signals> {
        Some(self)
    }

    fn streams(&self) -> Option<&dyn Streams> {
        Some(self)
    }

    fn locks(&self) -> Option<&dyn Locks> {
        Some(self)
    }

    fn records(&self) -> Option<&dyn Records> {
        Some(self)
    }

    fn transactions(&self) -> Option<&dyn Transactions> {
        Some(self)
    }

    fn ledger(&self) -> Option<&dyn Ledger> {
        Some(self)
    }

    async fn wait_due(&self, queues: Vec<QueueName>) -> Result<DueHints> {
        self.check_open()?;
        Ok(hints(self.shared.clone(), queues, self.closed.subscribe()))
    }
}
