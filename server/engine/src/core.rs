//! What all calls of one engine share, and the one way to call the storage: in a task of its own
//! that runs to its end, whatever becomes of who asked.

use crate::{
    ClaimedTask, EngineError, EngineOptions,
    admission::Enqueues,
    batcher::Batcher,
    cancellation::Cancels,
    clock,
    dispatch::Dispatcher,
    feeds::Feeds,
    heartbeat::Extensions,
    interactive::OpenTransactions,
    listeners::Listeners,
    page_token::PageTokens,
    queues::Queues,
    records::Changes,
    resolution::Resolutions,
    signals::Notifications,
    streams::{Publications, SavedOffsets},
    token::ClaimContext,
};
use rdq_spi::{
    Call, Capabilities, ClaimRef, HintHub, Moment, Outcome, Resolution, Storage, StorageError,
};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

/// How often a claim that nobody has is ended before its lease is left to lapse.
const SETTLE_TRIES: u32 = 3;
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

pub(crate) struct Core {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) capabilities: Capabilities,
    pub(crate) options: EngineOptions,
    pub(crate) queues: Queues,
    pub(crate) page_tokens: PageTokens,
    pub(crate) enqueues: Batcher<Enqueues>,
    pub(crate) resolutions: Batcher<Resolutions>,
    pub(crate) extensions: Batcher<Extensions>,
    pub(crate) cancels: Batcher<Cancels>,
    pub(crate) publications: Batcher<Publications>,
    pub(crate) saved_offsets: Batcher<SavedOffsets>,
    pub(crate) notifications: Batcher<Notifications>,
    pub(crate) changes: Batcher<Changes>,
    pub(crate) listeners: Listeners,
    /// The storage finds claims by who holds them.
    pub(crate) has_outboxes: bool,
    pub(crate) open_transactions: OpenTransactions,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) feeds: Feeds,
    /// Some subscription is full: the keeper looks which of its claims are over.
    pub(crate) full: Notify,
    /// Hints of this process, for storages that give none.
    pub(crate) hints: HintHub,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}

impl Core {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        options: EngineOptions,
        page_tokens: PageTokens,
        has_outboxes: bool,
    ) -> Self {
        Self {
            capabilities: storage.capabilities(),
            queues: Queues::new(options.file.clone(), options.require_declared_queues),
            storage,
            options,
            page_tokens,
            enqueues: Batcher::default(),
            resolutions: Batcher::default(),
            extensions: Batcher::default(),
            cancels: Batcher::default(),
            publications: Batcher::default(),
            saved_offsets: Batcher::default(),
            notifications: Batcher::default(),
            changes: Batcher::default(),
            listeners: Listeners::default(),
            has_outboxes,
            open_transactions: OpenTransactions::default(),
            dispatcher: Dispatcher::default(),
            feeds: Feeds::default(),
            full: Notify::new(),
            hints: HintHub::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Runs `work` to its end in its own task, even if the caller goes away.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let span = tracing::debug_span!("storage", operation);
        let done = self.tasks.spawn(work.instrument(span)).await;
        done.map_err(|panic| {
            tracing::error!(operation, %panic, "a storage call did not end");
            EngineError::internal(operation, panic)
        })
    }

    /// One storage call, run to its end.
    pub(crate) async fn call<T, F>(
        &self,
        operation: &'static str,
        call: impl FnOnce(Arc<dyn Storage>) -> F,
    ) -> Result<T, EngineError>
    where
        T: Send + 'static,
        F: Future<Output = rdq_spi::Result<T>> + Send + 'static,
    {
        Ok(self.run(operation, call(Arc::clone(&self.storage))).await??)
    }

    /// Gives claims back unspent that nobody received.
    pub(crate) fn give_back(self: &Arc<Self>, claims: Vec<ClaimedTask>) {
        if claims.is_empty() {
            return;
        }
        let core = Arc::clone(self);
        self.tasks.spawn(async move {
            let resolutions: Vec<_> = claims
                .into_iter()
                .filter_map(|claim| {
                    let context = ClaimContext::decode(&claim.token)?;
                    core.hint_in_process(&claim.task.queue, Duration::ZERO);
                    Some(Resolution {
                        claim: ClaimRef { task_id: claim.task.id, token: context.storage_token },
                        call: Call::Release,
                        outcome: Outcome::GiveBack { due: Moment::NOW },
                        strict: false,
                    })
                })
                .collect();
            core.settle_surely(resolutions).await;
        });
    }

    /// Resolves claims that no caller waits for, and tries again while the storage fails. If it
    /// fails for longer, the leases lapse.
    pub(crate) async fn settle_surely(&self, resolutions: Vec<Resolution>) {
        let claims = resolutions.len();
        for attempt in 1..=SETTLE_TRIES {
            match self.storage.resolve(resolutions.clone()).await {
                Ok(answers) => {
                    for error in answers.into_iter().filter_map(Result::err) {
                        // Somebody cancelled, swept or reclaimed the task meanwhile: as good.
                        let ended = matches!(
                            error,
                            StorageError::StaleClaim { .. } | StorageError::NotFound { .. }
                        );
                        if !ended {
                            tracing::warn!(%error, "a claim that nobody has was not ended");
                        }
                    }
                    return;
                }
                Err(StorageError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, attempt, claims, "claims of nobody were not ended");
                }
            }
            clock::sleep(clock::jittered(SETTLE_PAUSE * attempt, 0.5)).await;
        }
    }

    /// Tells the claim loops of this process, where the storage tells nobody.
    pub(crate) fn hint_in_process(&self, queue: &rdq_spi::QueueName, due_in: Duration) {
        if !self.capabilities.notify {
            self.hints.hint(queue, due_in);
        }
    }

    pub(crate) async fn keep_queues_fresh(self: Arc<Self>) {
        let mut failing = false;
        loop {
            let pause = clock::jittered(self.options.config_refresh, 0.1);
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return,
                () = clock::sleep(pause) => {}
            }
            match self.queues.refresh(&*self.storage).await {
                Ok(()) => failing = false,
                // Once, not every second of an outage.
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "queue configurations were not read; the last hold");
                }
                Err(_) => {}
            }
        }
    }
}

/// One answer for each of `count` items, out of one answer for all.
pub(crate) fn spread<T>(
    operation: &'static str,
    answers: rdq_spi::Result<Vec<rdq_spi::Result<T>>>,
    count: usize,
) -> Vec<Result<T, EngineError>> {
    match answers {
        Ok(answers) if answers.len() == count => {
            answers.into_iter().map(|answer| answer.map_err(EngineError::from)).collect()
        }
        Ok(answers) => {
            let message = format!("{} answers to {count} items", answers.len());
            refuse_all(&EngineError::internal(operation, message), count)
        }
        Err(error) => refuse_all(&error.into(), count),
    }
}

pub(crate) fn refuse_all<T>(error: &EngineError, count: usize) -> Vec<Result<T, EngineError>> {
    (0..count).map(|_| Err(error.clone())).collect()
}
